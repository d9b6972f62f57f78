"""Arm runs one after another, or in worker processes; the numbers are the same."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from tunescope.bench import Bench, open_bench
from tunescope.plan import Plan
from tunescope.progress import at_most_every
from tunescope.run_arm import Job, Outcome, run
from tunescope.train import Progress

OnProgress = Callable[[Job, Progress], None]
OnDone = Callable[[Job, Outcome], None]

_bench: Bench | None = None  # a worker's own: loaded once, used by every job it gets
_events: Any = None


def run_all(
    bench: Bench, jobs: Sequence[Job], folder: Path, workers: int, on_progress: OnProgress, on_done: OnDone
) -> dict[str, Outcome]:
    """Every job's outcome by id. A worker that is killed costs its job, never the run."""
    if workers == 1 or len(jobs) < 2:
        outcomes = {}
        for todo in jobs:
            outcomes[todo.id] = run(bench, todo, folder, partial(on_progress, todo))
            on_done(todo, outcomes[todo.id])
        return outcomes
    outcomes = _pooled(bench.plan, jobs, folder, workers, on_progress, on_done)
    for todo in jobs:  # after a broken pool: one at a time, so that the guilty one is known
        if todo.id not in outcomes:
            alone = _pooled(bench.plan, [todo], folder, 1, on_progress, on_done)
            outcomes[todo.id] = alone.get(todo.id) or _killed(todo)
            if todo.id not in alone:
                on_done(todo, outcomes[todo.id])
    return outcomes


def _pooled(
    plan: Plan, jobs: Sequence[Job], folder: Path, workers: int, on_progress: OnProgress, on_done: OnDone
) -> dict[str, Outcome]:
    """The outcomes until all are there or the pool breaks."""
    context = multiprocessing.get_context("spawn")
    events = context.Queue()
    outcomes: dict[str, Outcome] = {}
    pool = ProcessPoolExecutor(min(workers, len(jobs)), context, _start, (plan, events))
    try:
        waiting: dict[Future[Outcome], Job] = {pool.submit(_work, todo, folder): todo for todo in jobs}
        while waiting:
            done, _ = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
            _drain(events, {todo.id: todo for todo in jobs}, on_progress)
            for future in done:
                todo = waiting.pop(future)
                outcomes[todo.id] = future.result()
                on_done(todo, outcomes[todo.id])
    except BrokenProcessPool:
        pass
    except BaseException:
        _end_workers(pool)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        events.close()
    return outcomes


def _start(plan: Plan, events: Any) -> None:
    """In a worker: load once, leave Ctrl-C to the parent, and never outlive it."""
    global _bench, _events
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(plan.threads)
    _bench, _events = open_bench(plan), events


def _work(todo: Job, folder: Path) -> Outcome:
    assert _bench is not None
    return run(_bench, todo, folder, at_most_every(0.2, lambda progress: _events.put((todo.id, progress))))


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


def _end_workers(pool: ProcessPoolExecutor) -> None:
    """What they had half done is kept by their saved states."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


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
