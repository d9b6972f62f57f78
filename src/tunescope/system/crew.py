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
from ctypes import c_byte
from dataclasses import dataclass
from itertools import count
from multiprocessing import sharedctypes
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from queue import Empty
from typing import TYPE_CHECKING, Any, Literal

from tunescope.errors import UserError
from tunescope.system.interrupts import children_spared, interrupts_held

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.queues import Queue

Happening = Literal["begun", "told", "done", "killed"]
KILLED = "its process was killed twice, most likely for want of memory; try fewer --workers"

UNBEGUN = (
    "a worker ended before it began. A script is imported by every worker, so what it does itself stands under "
    "`if __name__ == '__main__':`. If it does, the worker's own words are above, or try fewer workers."
)

_events: Queue[Any] | None = None  # a worker's own
_place = 0
_unready: UserError | None = None  # why it cannot work


@dataclass(frozen=True)
class Worker:
    """One process, and what it tells meanwhile: nobody else writes there, so a kill can leave no lock of it taken.

    place: its number among those that are there, from 0; of one that is gone another has it. begun: whether it came to
    work at all, in memory that it shares.
    """

    pool: ProcessPoolExecutor
    events: Queue[Any]
    place: int
    begun: c_byte


class Crew:
    """At most so many processes, each started with the first piece that needs it.

    start: what a new process does first, with `given`. A UserError there is raised by `run`, as those of work are.
    """

    def __init__(self, workers: int, context: BaseContext, start: Callable[..., None], given: tuple[Any, ...] = ()):
        self.workers, self.context, self.start, self.given = workers, context, start, given
        self.team: list[Worker] = []
        self.idle: list[Worker] = []
        self.left: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self.busy: dict[Future[Any], tuple[Worker, Any]] = {}
        self.has_begun = False  # whether any worker ever has

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

    def submit(self, work: Callable[[Any], Any], pieces: Sequence[Any]) -> None:
        """Have `work(piece)` done of every piece; `turn` tells what comes of them."""
        self.left.extend((work, piece) for piece in pieces)

    def turn(self) -> Iterator[tuple[Happening, Any, Any]]:
        """What happens to pieces within a third of a second: (what, piece, what it told or returned).

        Raises UserError where the first worker ends before it begins, as in a script that does not ask for its
        `__name__`.
        """
        while self.left and len(self.busy) < self.workers:
            work, piece = self.left[0]
            worker, future = self._begun(work, piece)
            self.busy[future] = (worker, piece)
            self.left.popleft()
            yield "begun", piece, None
        done, _ = wait(self.busy, timeout=0.3, return_when=FIRST_COMPLETED)
        for worker, piece in list(self.busy.values()):
            for event in _drained(worker.events):
                yield "told", piece, event
        for future in done:
            worker, piece = self.busy.pop(future)
            self.has_begun |= bool(worker.begun.value)
            if isinstance(future.exception(), BrokenProcessPool):
                if not (worker.begun.value or self.has_begun):
                    raise UserError(UNBEGUN)
                self._drop(worker)
                yield "killed", piece, None
            else:
                self.idle.append(worker)
                yield "done", piece, future.result()

    def _through(
        self,
        work: Callable[[Any], Any],
        pieces: Sequence[Any],
        on_done: Callable[[Any, Any], None],
        on_event: Callable[[Any], None],
    ) -> list[Any]:
        """Every piece once; returns those whose process was killed."""
        self.submit(work, pieces)
        lost = []
        while self.left or self.busy:
            for what, piece, value in self.turn():
                if what == "killed":
                    lost.append(piece)
                elif what == "told":
                    on_event(value)
                elif what == "done":
                    on_done(piece, value)
        return lost

    def _begun(self, work: Callable[[Any], Any], piece: object) -> tuple[Worker, Future[Any]]:
        """The piece given to a worker that is idle, or to a new one; one that was killed while idle is dropped."""
        while self.idle:
            worker = self.idle.pop()
            try:
                return worker, worker.pool.submit(_done, work, piece)
            except BrokenProcessPool:
                self._drop(worker)
        with children_spared(), interrupts_held():  # a parent that ends here leaves a child without a word
            events = self.context.Queue()
            place = next(number for number in count() if number not in [one.place for one in self.team])
            begun = sharedctypes.RawValue(c_byte, 0)
            end, handed = self.context.Pipe(duplex=False)
            begin = (events, place, begun, self.start, end)
            worker = Worker(ProcessPoolExecutor(1, self.context, _begin, begin), events, place, begun)
            self.team.append(worker)
            threading.Thread(target=_hand, args=(handed, ForkingPickler.dumps(self.given)), daemon=True).start()
            future = worker.pool.submit(_done, work, piece)
            end.close()  # the worker's own is left: when that is gone, nobody waits for it
            return worker, future

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


def tell(event: object) -> None:
    """In a worker: say something that `on_event` hears in the parent; in any other process nobody hears it."""
    if _events is not None:
        _events.put(event)


def place() -> int:
    """In a worker: its number in the crew, such as that of the GPU to take."""
    return _place


def _hand(to: Connection, given: memoryview) -> None:
    """What a worker is given, while it imports. With its process, this one would wait for that, worker by worker."""
    with suppress(OSError), to:
        to.send_bytes(given)


def _begin(events: Queue[Any], number: int, begun: c_byte, start: Callable[..., None], handed: Connection) -> None:
    """In a worker: leave Ctrl-C to the parent, and never outlive it."""
    global _events, _place, _unready
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    given = handed.recv()
    begun.value = 1
    _events, _place = events, number
    try:
        start(*given)
    except UserError as problem:  # raised here it would only end the process, as if it had been killed
        _unready = problem


def _done(work: Callable[[Any], Any], piece: object) -> Any:
    """In a worker: the piece done. Raises what kept the worker from being ready."""
    if _unready is not None:
        raise _unready
    return work(piece)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _drained(events: Queue[Any]) -> Iterator[Any]:
    with suppress(Empty):
        while True:
            yield events.get_nowait()
