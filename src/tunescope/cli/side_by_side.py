"""Where a comparison runs, from the command line: workers with a model each, ranks that share one, a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tunescope.cli.output import check_finished, print_run
from tunescope.system import ranks
from tunescope.system.executor import HERE, check_workers
from tunescope.system.forkserver import begin
from tunescope.system.say import say

if TYPE_CHECKING:
    from tunescope.comparison.comparison import Comparison
    from tunescope.system.pieces import Place
    from tunescope.trial.plan import Plan

PRELOAD = "tunescope.comparison.preload"  # what workers import while the command itself does


def begun(model: str, processes: int, workers: int, executor: str) -> None:
    """Workers that are on this machine begin to import; where several processes are to be begun, it ends.

    Raises UserError for a number below 0 of either.
    """
    check_workers(workers)
    if not is_here(executor):
        return
    asked = ranks.count(processes)
    if asked == 1:
        begin(model, workers, PRELOAD)
    elif not ranks.is_begun():
        sys.exit(ranks.begun(asked, ["-m", "tunescope", *sys.argv[1:]]))


def at_once(model: str, device: str, processes: int, workers: int, executor: str, device_map: str = "") -> int:
    """How many runs: as many as there is room for where it is not said, which of a cluster is 0.

    device_map: as in the plan; one model that is spread takes all devices.
    """
    from tunescope.system import machine

    if workers or not is_here(executor):
        return workers
    return 1 if device_map or ranks.count(processes) > 1 else machine.default_workers(model, device)


def place(plan: Plan, workers: int, executor: str, preload: str) -> Place:
    """Where the pieces of a study are done: 0 workers are as many as there is room for. preload: as in `forkserver`."""
    from tunescope.system import machine
    from tunescope.system.pieces import Place
    from tunescope.trial.executor_name import parse

    check_workers(workers)
    found = parse(executor)
    if not found.is_remote:
        workers = workers or (1 if plan.device_map else machine.default_workers(plan.model, plan.device))
        begin(plan.model, workers, preload)
    return Place(found, workers, float(plan.device.startswith("cuda")))


@contextmanager
def submitted_told() -> Iterator[None]:
    """That jobs are with a queue is no error: what to type next is told."""
    from tunescope.system.far_jobs import Submitted

    try:
        yield
    except Submitted as told:
        say(str(told))


def show(found: Comparison) -> None:
    """Of several processes the first tells. Where no arm is done it ends as `check_finished` says."""
    if ranks.rank() == 0:
        print_run(found.folder, found.results)
        check_finished(found.folder, found.results)


def is_here(executor: str) -> bool:
    """Whether it is processes of this machine."""
    if executor == HERE:
        return True
    from tunescope.trial.executor_name import parse

    return not parse(executor).is_remote
