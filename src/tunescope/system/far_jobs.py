"""Jobs on other machines: asked for in the run's folder, and done when a result that is verified lies there."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system import job_folder, lease
from tunescope.system.executor import Event, Executor
from tunescope.system.job_folder import DEATHS, JobFolder
from tunescope.system.say import say

LATE = 10.0  # seconds that a file may take to be seen from here, after its writer has said that it is there
LOOKED_EVERY = 2.0
LOST = 75  # the exit code of a worker whose lease another has put away


class Submitted(Exception):  # noqa: N818
    """Jobs are with a queue; the message says how to go on."""


class Jobs(ABC):
    """The jobs of one round, as who asks for them knows them.

    folder: of the run. asks: id -> what is to be done, in words. how: what to type while a queue has them.
    """

    folder: Path
    asks: Mapping[str, Mapping[str, Any]]
    how: str

    @abstractmethod
    def known(self, name: str) -> Any:
        """A result that lasts, read anew and verified; None where there is none."""

    @abstractmethod
    def passing(self, name: str, told: Mapping[str, Any]) -> Any:
        """The outcome of a job that left no result which lasts, by its worker's word; None where it should have."""

    @abstractmethod
    def failed(self, name: str, reason: str) -> Any:
        """The outcome of a job whose workers died too often."""

    @abstractmethod
    def done(self, name: str, outcome: Any) -> None:
        """Hears of every outcome."""

    @abstractmethod
    def progress(self, name: str, found: Mapping[str, Any]) -> None:
        """Hears where a job is."""


class FarJobs:
    """One round of jobs, on an executor of other machines."""

    def __init__(self, jobs: Jobs, executor: Executor):
        self.jobs, self.executor = jobs, executor
        self.left = {name: JobFolder(jobs.folder, name) for name in jobs.asks}
        self.outcomes: dict[str, Any] = {}
        self.told: dict[str, dict[str, Any] | None] = {}

    def run(self) -> dict[str, Any]:
        """Every job's outcome by id.

        Raises:
            UserError: a worker finds something else than this process, or the disk fails there.
            Submitted: the executor does not wait, and there is not an outcome of each yet.
        """
        for name, folder in self.left.items():
            folder.ask(self.jobs.asks[name])
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
        name, folder = event.job, self.left[event.job]
        if event.kind == "died":
            folder.died()
        last = time.monotonic() + LATE
        while not self._settle(name):
            if event.value in ("held", "failed") or event.kind == "died":
                break
            if time.monotonic() > last:
                folder.died()
                self._settle(name)
                break
            time.sleep(0.2)
        if name in self.left:
            self.executor.submit([name])

    def _settle(self, name: str) -> bool:
        """Whether there is an outcome, which is then taken."""
        outcome = self._outcome(name)
        if outcome is None:
            return False
        self.outcomes[name] = outcome
        del self.left[name]
        self.jobs.done(name, outcome)
        return True

    def _outcome(self, name: str) -> Any:
        """What came of a job. Raises UserError for what kept the worker from working."""
        folder = self.left[name]
        known = self.jobs.known(name)
        if known is not None:
            return known
        told = folder.outcome(self.jobs.asks[name])
        if told is not None and "error" in told:
            folder.clear()
            raise UserError(told["error"])
        passing = None if told is None else self.jobs.passing(name, told)
        if passing is not None:
            return passing
        if told is not None:
            folder.clear()  # the result that it speaks of is damaged or gone
        if folder.deaths() < DEATHS:
            return None
        return self.jobs.failed(name, f"its worker died {DEATHS} times; what it printed is in jobs/{name}/log.txt")

    def _look(self) -> None:
        """Where the jobs are that somebody works on."""
        for name, folder in self.left.items():
            found = folder.progress()
            if found is not None and found != self.told.get(name):
                self.told[name] = found
                self.jobs.progress(name, found)

    def _hand_in(self) -> None:
        """Give the queue what nobody works on and it does not have; raises Submitted where anything is left."""
        folders = dict(self.left)
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
            raise Submitted(f"{_words(len(new), len(queued), len(at_work))} {self.jobs.how}")

    def _settle_all(self) -> None:
        for name in list(self.left):
            self._settle(name)


def _words(new: int, queued: int, at_work: int) -> str:
    told = [
        f"{count} {what}" for count, what in ((new, "handed in"), (queued, "queued"), (at_work, "running")) if count
    ]
    return f"jobs: {', '.join(told)}."


def begin_anew(folder: Path) -> None:
    """What went wrong in an earlier go is tried again, but for what somebody works on."""
    every = job_folder.every(folder)
    alive = lease.live([one.lease for one in every])
    for one in every:
        if one.lease not in alive:
            lease.put_away(one.lease, one.death())  # of a worker that went with the command
            one.clear()


def do(folder: JobFolder, work: Callable[[dict[str, Any]], Mapping[str, Any]], about: Callable[[Any], str]) -> str:
    """In a worker: the job done, if nobody else is at it: "done", "failed" by a fault of ours, or "held" by another.

    work: makes what is asked, and returns what is told of it. about: what is asked, in words for the log. A fault of
    ours is told in the log, and counts as a death.
    """
    with folder.log():
        asked = folder.asked()
        with lease.held(folder.lease, dead=folder.death, lost=lambda: os._exit(LOST)) as is_mine:
            if not is_mine:
                say(f"job {folder.name}: another process works on it")
                return "held"
            if folder.outcome(asked) is None and folder.deaths() < DEATHS:
                say(f"job {folder.name} on {socket.gethostname()}: {about(asked)}")
                return _done(folder, asked, work)
    return "done"


def _done(folder: JobFolder, asked: dict[str, Any], work: Callable[[dict[str, Any]], Mapping[str, Any]]) -> str:
    try:
        folder.put_outcome(asked, work(asked))
    except UserError as problem:
        folder.put_outcome(asked, {"error": str(problem)})
    except Exception:
        traceback.print_exc(file=sys.stdout)
        folder.died()
        return "failed"
    return "done"


def refused(run: Path, name: str, problem: Exception) -> None:
    """Leave word of what keeps a worker from being ready, for whoever looks for what came of the job."""
    folder = JobFolder(run, name)
    if (run / "jobs" / "run.json").exists():
        folder.put_outcome(folder.asked(), {"error": str(problem)})


def command(run: Path, token: str, name: str) -> list[str]:
    """What does a job in a process of its own."""
    return [sys.executable, "-m", "tunescope", "work", str(run), "--job", name, "--token", token]
