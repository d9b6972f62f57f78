"""Arm runs one after another, or in worker processes; the numbers are the same."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from tunescope.comparison import other_text, shared_passes
from tunescope.comparison.job import Job
from tunescope.comparison.progress import at_most_every
from tunescope.comparison.run import Outcome, Report, is_known
from tunescope.system import forkserver
from tunescope.system.crew import KILLED, Crew, tell
from tunescope.trial.as_read import as_read, check_worker
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.train.loop import Progress

PRELOAD = f"{__package__}.preload"
OnProgress = Callable[[Job, Progress], None]
OnDone = Callable[[Job, Outcome], None]

_bench: Bench | None = None  # a worker's own: loaded once, used by every job it gets


class Runner:
    """Runs jobs; its worker processes start with the first that need them, and end with `close`."""

    def __init__(self, bench: Bench, folder: Path, workers: int, on_progress: OnProgress, on_done: OnDone):
        self.bench, self.folder, self.workers = bench, folder, workers
        self.on_progress, self.on_done = on_progress, on_done
        self.crew = Crew(workers, forkserver.context(PRELOAD), _start, (bench.plan, _read(bench)))

    def run(self, jobs: Sequence[Job], together: int = 1) -> dict[str, Outcome]:
        """Every job's outcome by id, so many in a pass. A worker that is killed costs its job, never the run."""
        known = [todo for todo in jobs if self.workers == 1 or is_known(self.bench, self.folder, todo)]
        outcomes = {
            name: one for some in shared_passes.groups(self.bench, known, together) for name, one in self._here(some)
        }
        left = [todo for todo in jobs if todo.id not in outcomes]
        return outcomes | self._spread(shared_passes.groups(self.bench, left, together))

    def _here(self, jobs: list[Job]) -> list[tuple[str, Outcome]]:
        outcomes = shared_passes.run(self.bench, jobs, self.folder, lambda todo: partial(self.on_progress, todo))
        for todo in jobs:
            self.on_done(todo, outcomes[todo.id])
        return list(outcomes.items())

    def _spread(self, groups: Sequence[list[Job]]) -> dict[str, Outcome]:
        """The outcomes of what runs in workers; runs that share a pass are tried alone after one was killed."""
        outcomes: dict[str, Outcome] = {}
        by_id = {todo.id: todo for some in groups for todo in some}

        def done(some: list[Job], found: dict[str, Outcome]) -> None:
            outcomes.update(found)
            for todo in some:
                self.on_done(todo, found[todo.id])

        def heard(event: tuple[str, Progress]) -> None:
            name, progress = event
            if name in by_id:  # the last word of the jobs before may come late
                self.on_progress(by_id[name], progress)

        work = partial(_work, self.folder)
        killed = self.crew.run(work, groups, done, on_event=heard, parts=lambda some: [[todo] for todo in some])
        for some in killed:
            done(some, {todo.id: _killed(todo) for todo in some})
        return outcomes


@contextmanager
def runner(bench: Bench, folder: Path, workers: int, on_progress: OnProgress, on_done: OnDone) -> Iterator[Runner]:
    """A runner whose workers are gone afterwards, at once if something went wrong."""
    made = Runner(bench, folder, workers, on_progress, on_done)
    try:
        yield made
    finally:
        made.crew.close()


def _start(plan: Plan, read: Mapping[str, str]) -> None:
    """In a worker: load once. read: what the parent has read. Raises UserError where it is no longer the same."""
    global _bench
    torch.set_num_threads(plan.threads)
    opened = open_bench(plan)
    check_worker(opened, read, _read(opened))
    opened.encoders |= {
        name: digest for what, digest in read.items() if (name := what.removeprefix("encoder.")) != what
    }
    _bench = opened


def _read(bench: Bench) -> dict[str, str]:
    """Hashes of all that workers read for themselves; of other encoders when they are needed (`Bench.states`)."""
    text = other_text.windows(bench)
    return as_read(bench) | ({} if text is None else {"text.--forgetting": text.sha256})


def _work(folder: Path, jobs: list[Job]) -> dict[str, Outcome]:
    assert _bench is not None

    def report(todo: Job) -> Report:
        return at_most_every(0.2, lambda progress: tell((todo.id, progress)))

    return shared_passes.run(_bench, jobs, folder, report)


def _killed(todo: Job) -> Outcome:
    return {
        "id": todo.id,
        "learning_rate": todo.rate,
        "seed": todo.seed,
        "status": "out of memory",
        "reason": f"{KILLED} or a smaller --batch-size",
        "dev": None,
    }
