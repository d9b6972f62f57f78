"""A comparison's jobs on other machines: each is asked for by its id, and its result is verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.comparison import far_worker
from tunescope.comparison import run as run_arm
from tunescope.comparison.job import Job
from tunescope.comparison.outcome import KEPT, Outcome, stopped
from tunescope.system import shell
from tunescope.system.far_jobs import Jobs
from tunescope.trial.bench import Bench
from tunescope.trial.train.loop import Progress


class ArmJobs(Jobs):
    """The arm runs of one round."""

    def __init__(
        self,
        bench: Bench,
        folder: Path,
        jobs: Sequence[Job],
        on_progress: Callable[[Job, Progress], None],
        on_done: Callable[[Job, Outcome], None],
    ):
        self.bench, self.folder = bench, folder.absolute()
        self.by_id = {todo.id: todo for todo in jobs}
        self.asks = {todo.id: far_worker.ask_of(todo) for todo in jobs}
        self.on_progress, self.on_done = on_progress, on_done
        self.how = (
            f"To see where they are, type: tunescope status {shell.path(self.folder)}\n"
            f"To go on when they are done, type: tunescope resume {shell.path(self.folder)}"
        )

    def known(self, name: str) -> Outcome | None:
        todo = self.by_id[name]
        if not run_arm.is_known(self.bench, self.folder, todo):
            return None
        return run_arm.run(self.bench, todo, self.folder, lambda progress: None)

    def passing(self, name: str, told: Mapping[str, Any]) -> Outcome | None:
        return None if told["status"] in KEPT else dict(told)

    def failed(self, name: str, reason: str) -> Outcome:
        return stopped(self.by_id[name], "failed", reason)

    def done(self, name: str, outcome: Outcome) -> None:
        self.on_done(self.by_id[name], outcome)

    def progress(self, name: str, found: Mapping[str, Any]) -> None:
        self.on_progress(self.by_id[name], Progress(**{one: found[one] for one in Progress.__annotations__}))
