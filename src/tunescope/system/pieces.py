"""Pieces of work that know nothing of one another, on any executor: each goes as an id, and leaves a file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tunescope import __version__
from tunescope.errors import UserError
from tunescope.system import far_jobs, files, job_folder, lease, lock, run_folder
from tunescope.system.executor import Executor, Needs, Work
from tunescope.system.far_jobs import FarJobs, Jobs
from tunescope.system.job_folder import JobFolder

Told = Mapping[str, Any]  # what a worker says of a piece: "line", and more where nothing lasts
Do = Callable[[str, Mapping[str, Any]], Told]  # a piece's id, and what is asked
Opened = Callable[
    [Path, Mapping[str, Any], float], Do
]  # the run's folder, what all workers are to find, share of a GPU

_site: tuple[Path, Do] | None = None  # a worker's own


@dataclass(frozen=True)
class Place:
    """Where pieces are done.

    workers: at once; of other machines 0 is as many as there is room for. gpus: that a piece takes.
    """

    executor: Executor
    workers: int
    gpus: float = 0.0

    def hands_out(self, count: int) -> bool:
        """Whether so many pieces go to other processes: what this one does by itself as soon does not."""
        return count > 0 and (self.executor.is_remote or (self.workers != 1 and count > 1))


class Pieces(Jobs):
    """The pieces of one round. asks: id -> {"what": which kind of piece, "named": in words, and more for a worker}."""

    how = f"To go on when they are done, {files.SAME_COMMAND}."

    def __init__(self, folder: Path, asks: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]):
        self.folder, self.asks, self.say = folder.absolute(), asks, say
        self.ended = 0
        self.dead: list[str] = []

    @abstractmethod
    def lasts(self, name: str) -> bool:
        """Whether an outcome that lasts lies in the run's folder, and is verified."""

    @abstractmethod
    def passes(self, name: str, told: Told) -> bool:
        """Whether what the worker told is the outcome of a piece that left none which lasts."""

    def known(self, name: str) -> Told | None:
        if not self.lasts(name):
            return None
        return {"line": self.asks[name]["named"]} | (JobFolder(self.folder, name).outcome(self.asks[name]) or {})

    def passing(self, name: str, told: Told) -> Told | None:
        return dict(told) if self.passes(name, told) else None

    def failed(self, name: str, reason: str) -> Told:
        self.dead.append(f"{self.asks[name]['what']} {self.asks[name]['named']}: {reason}")
        return {"line": reason}

    def done(self, name: str, outcome: Told) -> None:
        self.ended += 1
        self.say(f"{self.asks[name]['what']} {self.ended} of {len(self.asks)}: {outcome['line']}")

    def progress(self, name: str, found: Mapping[str, Any]) -> None:
        """Pieces tell nothing on the way."""


def done(
    rounds: Sequence[Pieces], kind: str, opened: Opened, known: Mapping[str, Any], place: Place
) -> dict[str, Told]:
    """What was told of every piece, by id; one round behind the other.

    kind: whose pieces these are, for `tunescope work`. opened: in a worker, once: what does a piece there, a function
    that a module has by name. known: what all workers are to find.

    Raises:
        UserError: a piece's workers died too often, when all others of its round are done.
        Submitted: the executor does not wait.
    """
    run, executor = rounds[0].folder, place.executor
    needs = executor.with_needs(Needs(1, place.gpus))
    if executor.waits:
        far_jobs.begin_anew(run)
    shown = {"work": kind, "tunescope": __version__}
    token = job_folder.share(run, {**known, **shown})
    given = (opened, run, token, needs.gpus or 1.0)
    there = partial(far_jobs.command, run, token)
    executor.begin(Work(run, begin, given, do, preload=opened.__module__, command=there), place.workers, needs)
    told: dict[str, Told] = {}
    try:
        for pieces in rounds:
            told |= FarJobs(pieces, executor).run()
            if pieces.dead:
                far_jobs.begin_anew(run)
                kept = f"What is done is kept: to go on, {files.SAME_COMMAND}."
                raise UserError(f"{'; '.join(pieces.dead)}. {kept}")
        far_jobs.begin_anew(run)
    finally:
        executor.close()
    return told


def begin(opened: Opened, run: Path, token: str = "", share: float = 1.0) -> None:
    """In a worker: be ready for pieces. share: of the GPU's memory, which this process may take.

    Raises:
        UserError: the folder is not the one that is shared, another tunescope is installed here, or what `opened` has.
    """
    global _site
    shared = job_folder.shared(run, token)
    if shared["tunescope"] != __version__:
        raise UserError(
            f"the run was begun with tunescope {shared['tunescope']}, and here is {__version__}; install "
            "the same on every machine."
        )
    _site = (run, opened(run, shared, share))


def do(name: str) -> str:
    """In a worker: the piece of that id, if nobody else is at it: "done", or "held" by another."""
    assert _site is not None
    run, one = _site
    return far_jobs.do(JobFolder(run, name), partial(one, name), lambda asked: f"{asked['what']} {asked['named']}")


def check_id(name: str, mine: str, what: str) -> None:
    """UserError in a worker where what lies there makes another piece of the same words."""
    if mine != name:
        raise UserError(f"{what} {name} comes out as {mine} here; install the same tunescope on every machine.")


def are_of(run: Path) -> bool:
    """Whether pieces of that run were handed out, and not the runs of a comparison."""
    path = run / "jobs" / "run.json"
    return path.exists() and "work" in job_folder.shared(run)


def lines(run: Path) -> Iterator[str]:
    """Each piece that somebody works on or that waits in a queue; then who leads."""
    for one in job_folder.every(run):
        holder = lease.holder(one.lease)
        state = f"on {holder.get('host', '')}" if holder is not None else "queued" if one.waits else ""
        if state:
            yield f"{one.asked()['what']} {one.asked()['named']}: {state}"
    leader = lock.holder(run)
    if leader is not None:
        yield f"led by process {leader['pid']} on {leader['host']}"
    elif (run / "report.html").exists() and run_folder.kept(run, run / "results.json") is not None:  # a search's
        yield f"finished: see {run / 'report.html'}"
    else:
        yield f"nobody leads it; to go on, {files.SAME_COMMAND}"


def is_over(run: Path) -> bool:
    """Whether nobody leads it, nobody works on a piece, and none waits in a queue."""
    at_work = (lease.may_live(one.lease) or one.waits for one in job_folder.every(run))
    return lock.holder(run) is None and not any(at_work)
