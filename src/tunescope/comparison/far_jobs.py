"""Jobs on other machines: asked for in the run's folder, and done when a result that is verified lies there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tunescope.comparison import run as run_arm
from tunescope.comparison import work
from tunescope.comparison.job import Job
from tunescope.comparison.run import KEPT, Outcome
from tunescope.errors import UserError
from tunescope.system import job_folder, lease
from tunescope.system.executor import Event, Executor
from tunescope.system.job_folder import DEATHS, JobFolder
from tunescope.trial.bench import Bench
from tunescope.trial.train.loop import Progress

LATE = 10.0  # seconds that a file may take to be seen from here, after its writer has said that it is there
LOOKED_EVERY = 2.0


class Submitted(Exception):  # noqa: N818
    """Jobs are with a queue; the message says how to go on."""


class FarJobs:
    """The jobs of one round, on an executor of other machines."""

    def __init__(
        self,
        bench: Bench,
        folder: Path,
        executor: Executor,
        on_progress: Callable[[Job, Progress], None],
        on_done: Callable[[Job, Outcome], None],
    ):
        self.bench, self.folder, self.executor = bench, folder.absolute(), executor
        self.on_progress, self.on_done = on_progress, on_done
        self.left: dict[str, Job] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.told: dict[str, dict[str, Any] | None] = {}

    def run(self, jobs: Sequence[Job]) -> dict[str, Outcome]:
        """Every job's outcome by id.

        Raises:
            UserError: a worker finds something else than this process, or the disk fails there.
            Submitted: the executor does not wait, and there is not an outcome of each yet.
        """
        self.left = {todo.id: todo for todo in jobs}
        for todo in jobs:
            JobFolder(self.folder, todo.id).ask(work.ask_of(todo))
        self._settle_all()
        if self.left and not self.executor.waits:
            self._hand_in()
        if self.left:
            self.executor.submit(list(self.left))
        looked = 0.0
        while self.left:
            for event in self.executor.poll():
                self._hear(event)
            if time.monotonic() - looked >= LOOKED_EVERY:
                self._look()
                looked = time.monotonic()
        return self.outcomes

    def _hear(self, event: Event) -> None:
        """An executor's word is worth a look; without an outcome the job is tried again, until it has died thrice."""
        if event.job not in self.left or event.kind not in ("ended", "died"):
            return
        todo, folder = self.left[event.job], JobFolder(self.folder, event.job)
        if event.kind == "died":
            folder.died()
        last = time.monotonic() + LATE
        while not self._settle(todo):
            if event.value == "held" or event.kind == "died":
                break
            if time.monotonic() > last:
                folder.died()
                self._settle(todo)
                break
            time.sleep(0.2)
        if todo.id in self.left:
            self.executor.submit([todo.id])

    def _settle(self, todo: Job) -> bool:
        """Whether there is an outcome, which is then taken."""
        outcome = self._outcome(todo)
        if outcome is None:
            return False
        self.outcomes[todo.id] = outcome
        del self.left[todo.id]
        self.on_done(todo, outcome)
        return True

    def _outcome(self, todo: Job) -> Outcome | None:
        """What came of a job: a result that lasts is read anew and verified; of what does not last, the worker's word.

        Raises UserError for what kept the worker from working.
        """
        folder, asked = JobFolder(self.folder, todo.id), work.ask_of(todo)
        if run_arm.is_known(self.bench, self.folder, todo):
            return run_arm.run(self.bench, todo, self.folder, lambda progress: None)
        told = folder.outcome(asked)
        if told is not None and "error" in told:
            folder.clear()
            raise UserError(told["error"])
        if told is not None and told["status"] not in KEPT:
            return told
        if told is not None:
            folder.clear()  # the result that it speaks of is damaged or gone
        if folder.deaths() < DEATHS:
            return None
        reason = f"its worker died {DEATHS} times; what it printed is in jobs/{todo.id}/log.txt"
        return run_arm.stopped(todo, "failed", reason)

    def _look(self) -> None:
        """Where the jobs are that somebody works on."""
        for todo in self.left.values():
            found = JobFolder(self.folder, todo.id).progress()
            if found is not None and found != self.told.get(todo.id):
                self.told[todo.id] = found
                self.on_progress(todo, Progress(**{name: found[name] for name in Progress.__annotations__}))

    def _hand_in(self) -> None:
        """Give the queue what nobody works on and it does not have; raises Submitted where anything is left."""
        folders = {name: JobFolder(self.folder, name) for name in self.left}
        alive = lease.live([one.lease for one in folders.values()])
        at_work = {name for name, one in folders.items() if one.lease in alive}
        queued = self.executor.queued([name for name in folders if name not in at_work])
        gone = set(folders) - at_work - queued
        for name in gone:
            if folders[name].lease.exists() or folders[name].was_queued:
                folders[name].died()
        self._settle_all()
        new = [name for name in self.left if name in gone]
        if new:
            self.executor.submit(new)
            self._settle_all()  # a queue may be quick
        if self.left:
            raise Submitted(_words(len(new), len(queued), len(at_work), self.folder))

    def _settle_all(self) -> None:
        for todo in list(self.left.values()):
            self._settle(todo)


def _words(new: int, queued: int, at_work: int, folder: Path) -> str:
    told = [
        f"{count} {what}" for count, what in ((new, "handed in"), (queued, "queued"), (at_work, "running")) if count
    ]
    return (
        f"jobs: {', '.join(told)}. To see where they are, type: tunescope status {folder}\n"
        f"To go on when they are done, type: tunescope resume {folder}"
    )


def begin_anew(folder: Path) -> None:
    """What went wrong in an earlier go is tried again, but for what somebody works on."""
    for one in job_folder.every(folder):
        if not one.lease.exists():
            one.clear()
