"""A recipe whose pieces do what files in $TOY say: for what befalls processes, which find it by its name.

SEED.dies    as many kills of the process that works on the piece as it has letters
SEED.full    the disk is full
SEED.waits   until it is gone
"""

import errno
import os
import signal
import time
from pathlib import Path

from tunescope.report.cells import Cell, Table

TITLE, SOURCE, TAKES = "Toy", "nowhere", ("seeds",)


def settings(ask):
    return {"seeds": ask.seeds or 2}


def worlds(settings):
    return []


def units(settings):
    return [{"seed": seed} for seed in range(settings["seeds"])]


def work(settings, unit):
    toy, seed = Path(os.environ["TOY"]), unit["seed"]
    with open(toy / f"{seed}.pids", "a") as log:
        log.write(f"{os.getpid()}\n")
    dies = toy / f"{seed}.dies"
    if dies.exists() and dies.read_text():
        dies.write_text(dies.read_text()[1:])
        os.kill(os.getpid(), signal.SIGKILL)
    if (toy / f"{seed}.full").exists():
        raise OSError(errno.ENOSPC, "No space left on device")
    while (toy / f"{seed}.waits").exists():
        time.sleep(0.01)
    return {"a": seed / 8}


def table(settings, found):
    return Table(("score",), [("toy", [Cell.of([outcome for _, outcome in found], "a")])])
