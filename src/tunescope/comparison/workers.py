"""Arm runs one after another, or side by side on an executor; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tunescope.comparison import far_worker, shared_passes
from tunescope.comparison.far_jobs import ArmJobs
from tunescope.comparison.job import Job
from tunescope.comparison.outcome import Outcome
from tunescope.comparison.progress import at_most_every
from tunescope.comparison.run import Report, is_known
from tunescope.system import crew, far_jobs
from tunescope.system.crew import KILLED, tell
from tunescope.system.executor import Executor, Needs, Work
from tunescope.system.executors.local import Local
from tunescope.system.far_jobs import FarJobs
from tunescope.system.kernels import keep_few
from tunescope.trial import executor_name
from tunescope.trial.bench import Bench
from tunescope.trial.elsewhere import own_device
from tunescope.trial.plan import Plan
from tunescope.trial.train.loop import Progress

PRELOAD = f"{__package__}.preload"
HANDED = 2**26  # bytes of states of rows that a worker is given as it begins
OnProgress = Callable[[Job, Progress], None]
OnDone = Callable[[Job, Outcome], None]

_bench: Bench | None = None  # a worker's own: loaded once, used by every job it gets


class Runner:
    """Runs jobs; the executor's slots begin with the first job that needs them, and end with `close`.

    workers: so many at once; of other machines 0 is as many as there is room for.
    """

    def __init__(
        self,
        bench: Bench,
        folder: Path,
        workers: int,
        on_progress: OnProgress,
        on_done: OnDone,
        executor: Executor | None = None,
    ):
        self.bench, self.folder, self.workers = bench, folder, workers
        self.on_progress, self.on_done = on_progress, on_done
        self.executor = executor or Local()
        self.pieces: dict[str, list[Job]] = {}  # jobs that share a pass, by their ids
        self.is_begun = self.is_aside = False

    def run(self, jobs: Sequence[Job], together: int = 1) -> dict[str, Outcome]:
        """Every job's outcome by id, so many in a pass. A worker that is killed costs its job, never the run.

        Raises far_jobs.Submitted where the executor has a queue that this process does not wait for.
        """
        here = self.workers == 1 and not self.executor.is_remote
        known = [todo for todo in jobs if here or is_known(self.bench, self.folder, todo)]
        outcomes = {
            name: one for some in shared_passes.groups(self.bench, known, together) for name, one in self._here(some)
        }
        left = [todo for todo in jobs if todo.id not in outcomes]
        if left and not self.is_begun:
            self._begin()
        if left and self.executor.is_remote:
            far = ArmJobs(self.bench, self.folder, left, self.on_progress, self.on_done)
            return outcomes | FarJobs(far, self.executor).run()
        return outcomes | self._spread(shared_passes.groups(self.bench, left, together))

    def close(self) -> None:
        if self.is_begun:
            self.executor.close()

    def _begin(self) -> None:
        plan, executor = self.bench.plan, self.executor
        needs = executor.with_needs(Needs(plan.threads, float(plan.device.startswith("cuda"))))
        if not executor.is_remote:
            self._put_aside()
        executor.begin(self._far(needs) if executor.is_remote else self.near(), self.workers, needs)
        self.workers, self.is_begun = executor.capacity(), True

    def _put_aside(self) -> None:
        """The model of this process to the CPU: its GPU is for a worker's own, and nothing runs here meanwhile."""
        if self.bench.device.type == "cuda" and not self.bench.is_placed:
            self.bench.model.to("cpu")
            torch.cuda.empty_cache()
            self.is_aside = True

    def put_back(self) -> None:
        """The model to where it was, when the workers are gone."""
        if self.is_aside:
            self.bench.model.to(self.bench.device)
            self.is_aside = False

    def near(self) -> Work:
        """The work of this machine's processes, which are handed the jobs themselves."""
        return Work(
            folder=self.folder,
            start=_start,
            given=(self.bench.plan, far_worker.hashes(self.bench), _on_cpu(self.bench.means)),
            do=partial(_work, self.folder),
            payload=self.pieces.__getitem__,
            preload=PRELOAD,
        )

    def _far(self, needs: Needs) -> Work:
        """The work of other machines' processes, which find a job by its id."""
        run = self.folder.absolute()
        token = far_worker.share(run, self.bench, executor_name.show(self.executor))
        return Work(
            folder=run,
            start=far_worker.begin,
            given=(run, token, needs.gpus or 1.0),
            do=far_worker.do,
            command=partial(far_jobs.command, run, token),
            preload=PRELOAD,
        )

    def _here(self, jobs: list[Job]) -> list[tuple[str, Outcome]]:
        outcomes = shared_passes.run(self.bench, jobs, self.folder, lambda todo: partial(self.on_progress, todo))
        for todo in jobs:
            self.on_done(todo, outcomes[todo.id])
        return list(outcomes.items())

    def _spread(self, groups: Sequence[list[Job]]) -> dict[str, Outcome]:
        """The outcomes of what runs in processes here.

        One that is killed takes its runs with it. They are tried once more when all others are through, one by one: so
        each has all of the memory, and of runs that shared a pass the guilty one is known.
        """
        outcomes: dict[str, Outcome] = {}
        lost = self._through(groups, outcomes) if groups else []
        for todo in [todo for some in lost for todo in some]:
            for some in self._through([[todo]], outcomes):
                self._done(some, {todo.id: _killed(todo)}, outcomes)
        return outcomes

    def _through(self, groups: Sequence[list[Job]], outcomes: dict[str, Outcome]) -> list[list[Job]]:
        """All of them once; returns those whose process was killed."""
        left = {"+".join(todo.id for todo in some): some for some in groups}
        by_id = {todo.id: todo for some in groups for todo in some}
        lost = []
        self.pieces |= left
        self.executor.submit(list(left))
        while left:
            for event in self.executor.poll():
                if event.kind == "progress" and event.job in by_id:  # the last word of jobs before may come late
                    self.on_progress(by_id[event.job], event.value)
                elif event.kind == "ended":
                    self._done(left.pop(event.job), event.value, outcomes)
                elif event.kind == "died":
                    lost.append(left.pop(event.job))
        return lost

    def _done(self, some: list[Job], found: Mapping[str, Outcome], outcomes: dict[str, Outcome]) -> None:
        outcomes.update(found)
        for todo in some:
            self.on_done(todo, found[todo.id])


@contextmanager
def runner(
    bench: Bench,
    folder: Path,
    workers: int,
    on_progress: OnProgress,
    on_done: OnDone,
    executor: Executor | None = None,
) -> Iterator[Runner]:
    """A runner whose workers are gone afterwards, at once if something went wrong, and the model is where it was."""
    made = Runner(bench, folder, workers, on_progress, on_done, executor)
    try:
        yield made
    finally:
        try:
            made.close()
        finally:
            made.put_back()


def _on_cpu(means: Mapping[tuple[str, str], Tensor]) -> dict[tuple[str, str], np.ndarray]:
    """As arrays, which a pipe takes as they are: torch would send handles of memory that it shares.

    None where they are more than HANDED together: a worker that never asks would hold them all.
    """
    if sum(states.nbytes for states in means.values()) > HANDED:
        return {}
    return {key: states.cpu().numpy() for key, states in means.items()}


def _start(plan: Plan, read: Mapping[str, str], means: Mapping[tuple[str, str], np.ndarray]) -> None:
    """In a worker: load once. read: what the parent has read; means: states of rows that it has made.

    Raises UserError where what is read is no longer the same.
    """
    global _bench
    keep_few()
    torch.set_num_threads(plan.threads)
    _bench = far_worker.opened(replace(plan, device=own_device(plan.device, crew.place())), read)
    _bench.means |= {key: torch.from_numpy(states).to(_bench.device) for key, states in means.items()}


def _work(folder: Path, jobs: list[Job]) -> dict[str, Outcome]:
    assert _bench is not None

    def report(todo: Job) -> Report:
        return at_most_every(0.2, lambda progress: tell((todo.id, progress)))

    return shared_passes.run(_bench, jobs, folder, report)


def _killed(todo: Job) -> Outcome:
    return {
        "id": todo.id,
        "learning_rate": todo.rate,
        "learning_rates": todo.each_rate,
        "seed": todo.seed,
        "status": "out of memory",
        "reason": f"{KILLED} or a smaller --batch-size",
        "dev": None,
    }
