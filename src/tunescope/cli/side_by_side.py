"""Several processes of a comparison from the command line: workers with a model each, or ranks that share one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tunescope.cli.output import print_run
from tunescope.system import ranks
from tunescope.system.forkserver import begin

if TYPE_CHECKING:
    from tunescope.comparison.comparison import Comparison

PRELOAD = "tunescope.comparison.preload"  # what workers import while the command itself does


def begun(asked: int, workers: int, model: str) -> int:
    """The workers to be had, 0 for as many as there is room for; where several processes are to be begun, it ends."""
    processes = ranks.count(asked)
    if processes == 1:
        begin(model, workers, PRELOAD)
        return workers
    if not ranks.is_begun():
        sys.exit(ranks.begun(processes, ["-m", "tunescope", *sys.argv[1:]]))
    return workers or 1


def told(found: Comparison) -> None:
    """Of several processes the first tells."""
    if ranks.rank() == 0:
        print_run(found.folder, found.results)
