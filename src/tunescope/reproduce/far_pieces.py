"""A recipe's pieces on other machines: each goes as an id, and its outcome lies in the recipe's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.reproduce import piece
from tunescope.reproduce.recipe import Settings, find
from tunescope.system import far_jobs, files, job_folder, run_folder
from tunescope.system.executor import Executor, Needs, Work
from tunescope.system.far_jobs import FarJobs, Jobs
from tunescope.system.job_folder import JobFolder
from tunescope.trial import executor_name

_site: tuple[Path, str, Settings] | None = None  # a worker's own: the folder, the recipe's name and settings


class Pieces(Jobs):
    """The pieces of one round, worlds or units. asks: id -> {"what": "world" or "piece", "number", "named"}."""

    how = f"To go on when they are done, {files.SAME_COMMAND}."

    def __init__(self, folder: Path, asks: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]):
        self.folder, self.asks, self.say = folder, asks, say
        self.ended = 0
        self.dead: list[str] = []

    def known(self, name: str) -> str | None:
        """What its worker said of a piece that lasts; a world lies in a cache that this machine may not see."""
        if self.asks[name]["what"] == "world" or run_folder.kept(self.folder, piece.path(self.folder, name)) is None:
            return None
        told = JobFolder(self.folder, name).outcome(self.asks[name]) or {}
        return str(told.get("line", self.asks[name]["named"]))

    def passing(self, name: str, told: Mapping[str, Any]) -> str | None:
        is_there = self.asks[name]["what"] == "world" or piece.passing(piece.path(self.folder, name)).exists()
        return str(told["line"]) if is_there else None

    def failed(self, name: str, reason: str) -> str:
        self.dead.append(f"{self.asks[name]['what']} {self.asks[name]['named']}: {reason}")
        return reason

    def done(self, name: str, outcome: str) -> None:
        self.ended += 1
        self.say(f"{self.asks[name]['what']} {self.ended} of {len(self.asks)}: {outcome}")

    def progress(self, name: str, found: Mapping[str, Any]) -> None:
        """Pieces tell nothing on the way."""


def done(
    folder: Path,
    rounds: Sequence[Mapping[str, Mapping[str, Any]]],
    executor: Executor,
    workers: int,
    gpus: float,
    say: Callable[[str], None],
) -> None:
    """All pieces, one round behind the other.

    Raises:
        UserError: a piece's workers died too often, when all others are done.
        Submitted: the executor does not wait.
    """
    run, needs = folder.absolute(), executor.with_needs(Needs(1, gpus))
    if executor.waits:
        far_jobs.begin_anew(run)
    told = {"tunescope": version("tunescope"), "executor": executor_name.show(executor)}
    token = job_folder.share(run, told)
    given = (run, token, needs.gpus or 1.0)
    there = partial(far_jobs.command, run, token)
    executor.begin(Work(run, begin, given, do, preload=__name__, command=there), workers, needs)
    try:
        for asks in rounds:
            pieces = Pieces(run, asks, say)
            FarJobs(pieces, executor).run()
            if pieces.dead:
                far_jobs.begin_anew(run)
                kept = f"What is done is kept: to go on, {files.SAME_COMMAND}."
                raise UserError(f"{'; '.join(pieces.dead)}. {kept}")
        far_jobs.begin_anew(run)
    finally:
        executor.close()


def begin(run: Path, token: str = "", share: float = 1.0) -> None:
    """In a worker: what the folder's recipe is. share: of the GPU's memory, which this process may take.

    Raises:
        UserError: the folder is not the one that is shared, or another tunescope is installed here.
    """
    global _site
    shared = job_folder.shared(run, token)
    if shared["tunescope"] != version("tunescope"):
        raise UserError(
            f"the recipe was begun with tunescope {shared['tunescope']}, and here is {version('tunescope')}; install "
            "the same on every machine."
        )
    piece.single(share)
    config = run_folder.read_config(run)
    _site = (run, config["recipe"], config["settings"])


def do(name: str) -> str:
    """In a worker: the piece of that id, if nobody else is at it: "done", or "held" by another."""
    assert _site is not None
    run, recipe, settings = _site

    def work(asked: Mapping[str, Any]) -> dict[str, str]:
        if asked["what"] == "world":
            return {"line": piece.world(find(recipe).worlds(settings)[asked["number"]])}
        unit = find(recipe).units(settings)[asked["number"]]
        if run_folder.identity(unit) != name:
            mine = run_folder.identity(unit)
            raise UserError(f"piece {name} comes out as {mine} here; install the same tunescope on every machine.")
        return {"line": piece.unit(recipe, settings, unit, piece.path(run, name))}

    return far_jobs.do(JobFolder(run, name), work, lambda asked: f"{asked['what']} {asked['named']}")
