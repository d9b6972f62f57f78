"""The verbs for a run that others lead or wait for: status, watch, and work, which does one job of it."""

from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system.say import say


def work(run: str, /, *, job: str, token: str = "") -> None:
    """Do one job of a comparison or a recipe on another machine: what `--executor slurm` hands to each.

    Args:
        run: the run's folder, on a disk that the machines share.
        job: its id.
        token: what the folder is known by.
    """
    from tunescope.system import far_jobs, job_folder, run_folder

    place = Path(run)
    try:
        job_folder.shared(place, token)
        worker = _of_recipe() if "recipe" in run_folder.read_config(place) else _of_comparison()
        worker.begin(place, token)
    except UserError as problem:
        far_jobs.refused(place, job, problem)
        raise
    say(f"job {job}: {worker.do(job)}")


def _of_comparison() -> Any:
    from tunescope.comparison import far_worker as worker

    return worker


def _of_recipe() -> Any:
    from tunescope.reproduce import far_pieces

    return far_pieces


def status(run: str, /) -> None:
    """Say where the comparison in RUN is: every arm's runs, its best score on dev, the time that is left."""
    from tunescope.comparison import status as found

    for line in found.lines(Path(run)):
        say(line)


def watch(run: str, /, *, every: float = 5.0) -> None:
    """Say the same again and again, until the comparison in RUN ends or nobody works on it.

    Args:
        every: seconds.
    """
    import time

    from tunescope.comparison import status as found

    while True:
        told = list(found.lines(Path(run)))
        say("\n".join([*told, ""]))
        if found.is_over(Path(run)):
            return
        time.sleep(max(0.1, every))
