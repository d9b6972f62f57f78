"""The verbs for a run that others lead or wait for: status, watch, and work, which does one job of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system.say import say

DAY = 24 * 60 * 60  # seconds


def work(run: str, /, *, job: str, token: str = "") -> None:
    """Do one job of a run on another machine: what `--executor slurm` hands to each.

    Args:
        run: the run's folder, on a disk that the machines share.
        job: its id.
        token: what the folder is known by.
    """
    from tunescope.system import far_jobs, job_folder

    place = Path(run)
    try:
        begin, do = _worker(job_folder.shared(place, token).get("work", "comparison"))
        begin(place, token)
    except UserError as problem:
        far_jobs.refused(place, job, problem)
        raise
    say(f"job {job}: {do(job)}")


def _worker(kind: str) -> tuple[Callable[[Path, str], None], Callable[[str], str]]:
    """What readies this process for the jobs of a run, and what does one."""
    from functools import partial

    from tunescope.system import pieces

    if kind == "comparison":
        from tunescope.comparison import far_worker as worker

        return worker.begin, worker.do
    if kind == "recipe":
        from tunescope.reproduce.far_pieces import opened
    elif kind == "search":
        from tunescope.search.far_seeds import opened
    else:
        from tunescope.probes.anchors.far_draws import opened
    return partial(pieces.begin, opened), pieces.do


def status(run: str, /) -> None:
    """Say where RUN is: of a comparison every arm's runs, its best score on dev, the time that is left; else the pieces
    that are at work or wait."""
    for line in _where(run).lines(Path(run)):
        say(line)


def watch(run: str, /, *, every: float = 5.0) -> None:
    """Say the same again and again, until RUN ends or nobody works on it.

    Args:
        every: seconds, at most a day.
    """
    import time

    if not 0 < every <= DAY:
        raise UserError(f"--every {every:g} is no pause; give seconds above 0, and at most {DAY}, which are a day.")
    found = _where(run)
    while True:
        told = list(found.lines(Path(run)))
        say("\n".join([*told, ""]))
        if found.is_over(Path(run)):
            return
        time.sleep(max(0.1, every))


def _where(run: str) -> Any:
    """What tells of the run."""
    from tunescope.system import pieces

    if pieces.are_of(Path(run)):
        return pieces
    from tunescope.comparison import status as found

    return found
