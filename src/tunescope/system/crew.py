"""Worker processes, each a pool of its own: one that is killed takes the piece with it that it had, and nothing else.

What runs in them is imported there, so this file imports nothing large.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from queue import Empty
from typing import Any

from tunescope.errors import UserError
from tunescope.system.interrupts import children_spared

KILLED = "its process was killed twice, most likely for want of memory; try fewer --workers"

_events: Any = None  # a worker's own
_unready: UserError | None = None  # why it cannot work


@dataclass(frozen=True)
class Worker:
    """One process, and what it tells meanwhile: nobody else writes there, so a kill can leave no lock of it taken."""

    pool: ProcessPoolExecutor
    events: Any


class Crew:
    """At most so many processes, each started with the first piece that needs it.

    start: what a new process does first, with `given`. A UserError there is raised by `run`, as those of work are.
    """

    def __init__(self, workers: int, context: BaseContext, start: Callable[..., None], given: tuple[Any, ...] = ()):
        self.workers, self.context, self.start, self.given = workers, context, start, given
        self.team: list[Worker] = []
        self.idle: list[Worker] = []

    def run(
        self,
        work: Callable[[Any], Any],
        pieces: Sequence[Any],
        on_done: Callable[[Any, Any], None],
        *,
        on_event: Callable[[Any], None] = lambda event: None,
        parts: Callable[[Any], Sequence[Any]] = lambda piece: [piece],
    ) -> list[Any]:
        """`on_done(piece, work(piece))` of every piece as it ends; returns what was killed twice.

        A piece whose process is killed is tried once more when all others are through, in its `parts`, one at a time:
        so it has all of the memory, and the guilty part is known.
        """
        lost = self._through(work, pieces, on_done, on_event)
        again = [part for piece in lost for part in parts(piece)]
        return [part for part in again if self._through(work, [part], on_done, on_event)]

    def close(self) -> None:
        """End the processes, which are idle, or else keep what they had half done in their saved states."""
        for worker in self.team:
            for process in list((worker.pool._processes or {}).values()):  # to end by itself takes torch a second
                process.terminate()
        for worker in list(self.team):
            self._drop(worker)

    def _through(self, work: Any, pieces: Sequence[Any], on_done: Any, on_event: Any) -> list[Any]:
        """Every piece once; returns those whose process was killed."""
        left, lost = deque(pieces), []
        busy: dict[Future[Any], tuple[Worker, Any]] = {}
        while left or busy:
            while left and len(busy) < self.workers:
                worker, future = self._begun(work, left[0])
                busy[future] = (worker, left.popleft())
            done, _ = wait(busy, timeout=0.3, return_when=FIRST_COMPLETED)
            for worker, _ in busy.values():
                _drain(worker.events, on_event)
            for future in done:
                worker, piece = busy.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    self._drop(worker)
                    lost.append(piece)
                else:
                    self.idle.append(worker)
                    on_done(piece, future.result())
        return lost

    def _begun(self, work: Any, piece: Any) -> tuple[Worker, Future[Any]]:
        """The piece given to a worker that is idle, or to a new one; one that was killed while idle is dropped."""
        while self.idle:
            worker = self.idle.pop()
            try:
                return worker, worker.pool.submit(_done, work, piece)
            except BrokenProcessPool:
                self._drop(worker)
        with children_spared():
            events = self.context.Queue()
            worker = Worker(ProcessPoolExecutor(1, self.context, _begin, (events, self.start, self.given)), events)
            self.team.append(worker)
            return worker, worker.pool.submit(_done, work, piece)

    def _drop(self, worker: Worker) -> None:
        self.team.remove(worker)
        worker.pool.shutdown(wait=True, cancel_futures=True)
        worker.events.close()


@contextmanager
def crew(workers: int, context: BaseContext, start: Callable[..., None], given: tuple[Any, ...] = ()) -> Iterator[Crew]:
    """A crew whose processes are gone afterwards, at once if something went wrong."""
    made = Crew(workers, context, start, given)
    try:
        yield made
    finally:
        made.close()


def tell(event: Any) -> None:
    """In a worker: say something that `on_event` hears in the parent."""
    _events.put(event)


def _begin(events: Any, start: Callable[..., None], given: tuple[Any, ...]) -> None:
    """In a worker: leave Ctrl-C to the parent, and never outlive it."""
    global _events, _unready
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _events = events
    try:
        start(*given)
    except UserError as problem:  # raised here it would only end the process, as if it had been killed
        _unready = problem


def _done(work: Callable[[Any], Any], piece: Any) -> Any:
    """In a worker: the piece done. Raises what kept the worker from being ready."""
    if _unready is not None:
        raise _unready
    return work(piece)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _drain(events: Any, on_event: Callable[[Any], None]) -> None:
    with suppress(Empty):
        while True:
            on_event(events.get_nowait())
