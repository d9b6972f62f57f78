"""Arm runs one after another, or in worker processes; the numbers are the same."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from tunescope.compare import shared_passes
from tunescope.compare.job import Job
from tunescope.compare.progress import at_most_every
from tunescope.compare.run import Outcome, Report, is_known
from tunescope.system import forkserver
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.train.loop import Progress

OnProgress = Callable[[Job, Progress], None]
OnDone = Callable[[Job, Outcome], None]

_bench: Bench | None = None  # a worker's own: loaded once, used by every job it gets
_events: Any = None


class Runner:
    """Runs jobs; its worker processes start with the first that need them, and end with `close`."""

    def __init__(self, bench: Bench, folder: Path, workers: int, on_progress: OnProgress, on_done: OnDone):
        self.bench, self.folder, self.workers = bench, folder, workers
        self.on_progress, self.on_done = on_progress, on_done
        self.crew: tuple[ProcessPoolExecutor, Any] | None = None

    def run(self, jobs: Sequence[Job], together: int = 1) -> dict[str, Outcome]:
        """Every job's outcome by id, so many in a pass. A worker that is killed costs its job, never the run."""
        known = [todo for todo in jobs if self.workers == 1 or is_known(self.folder, todo)]
        outcomes = {
            name: one for some in shared_passes.groups(self.bench, known, together) for name, one in self._here(some)
        }
        jobs = [todo for todo in jobs if todo.id not in outcomes]
        if jobs:
            outcomes |= self._spread(shared_passes.groups(self.bench, jobs, together))
        for todo in jobs:  # after a broken pool: one at a time, so that the guilty one is known
            if todo.id not in outcomes:
                alone = self._spread([[todo]])
                outcomes[todo.id] = alone.get(todo.id) or _killed(todo)
                if not alone:
                    self.on_done(todo, outcomes[todo.id])
        return outcomes

    def close(self) -> None:
        """End the workers, which are idle, or else keep what they had half done in their saved states."""
        if self.crew is None:
            return
        pool, events = self.crew
        self.crew = None
        for process in list((pool._processes or {}).values()):  # to end by itself takes torch a second or two
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        events.close()

    def _here(self, jobs: list[Job]) -> list[tuple[str, Outcome]]:
        outcomes = shared_passes.run(self.bench, jobs, self.folder, lambda todo: partial(self.on_progress, todo))
        for todo in jobs:
            self.on_done(todo, outcomes[todo.id])
        return list(outcomes.items())

    def _spread(self, groups: Sequence[list[Job]]) -> dict[str, Outcome]:
        """The outcomes until all are there or the pool breaks."""
        outcomes: dict[str, Outcome] = {}
        pool, events = self.crew = self.crew or _crew(self.bench.plan, self.workers)
        try:
            waiting = {pool.submit(_work, some, self.folder): some for some in groups}
            while waiting:
                done, _ = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
                _drain(events, {todo.id: todo for some in groups for todo in some}, self.on_progress)
                for future in done:
                    outcomes |= future.result()
                    for todo in waiting.pop(future):
                        self.on_done(todo, outcomes[todo.id])
        except BrokenProcessPool:
            self.close()
        return outcomes


@contextmanager
def runner(bench: Bench, folder: Path, workers: int, on_progress: OnProgress, on_done: OnDone) -> Iterator[Runner]:
    """A runner whose workers are gone afterwards, at once if something went wrong."""
    made = Runner(bench, folder, workers, on_progress, on_done)
    try:
        yield made
    finally:
        made.close()


def _crew(plan: Plan, workers: int) -> tuple[ProcessPoolExecutor, Any]:
    made = forkserver.context()
    events = made.Queue()
    return ProcessPoolExecutor(workers, made, _start, (plan, events)), events


def _start(plan: Plan, events: Any) -> None:
    """In a worker: load once, leave Ctrl-C to the parent, and never outlive it."""
    global _bench, _events
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(plan.threads)
    _bench, _events = open_bench(plan), events


def _work(jobs: list[Job], folder: Path) -> dict[str, Outcome]:
    assert _bench is not None

    def report(todo: Job) -> Report:
        return at_most_every(0.2, lambda progress: _events.put((todo.id, progress)))

    return shared_passes.run(_bench, jobs, folder, report)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _drain(events: Any, jobs: dict[str, Job], on_progress: OnProgress) -> None:
    newest = {}
    with suppress(Empty):
        while True:
            name, progress = events.get_nowait()
            newest[name] = progress
    for name, progress in newest.items():
        on_progress(jobs[name], progress)


def _killed(todo: Job) -> Outcome:
    reason = (
        "its process was killed twice, most likely for want of memory; try fewer --workers or a smaller --batch-size"
    )
    return {
        "id": todo.id,
        "learning_rate": todo.rate,
        "seed": todo.seed,
        "status": "out of memory",
        "reason": reason,
        "dev": None,
    }
