"""`tunescope --help`: wall time of the whole process, median of ten."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time

from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale

TARGET_MS = 300.0
RUNS = {"full": 10, "tiny": 2}
COMMAND = [sys.executable, "-c", "import sys; from tunescope.cli.app import main; sys.exit(main())", "--help"]


def run(scale: Scale) -> Result:
    if importlib.util.find_spec("tunescope.cli.app") is None:
        return Result(skipped="tunescope.cli.app is not there yet")
    walls, cpu = [], []
    for _ in range(RUNS[scale.name]):
        start, start_cpu = time.perf_counter(), _children_cpu()
        subprocess.run(COMMAND, check=True, capture_output=True)
        walls.append(1000 * (time.perf_counter() - start))
        cpu.append(1000 * (_children_cpu() - start_cpu))
    checks = [Check("tunescope --help, milliseconds of wall time", statistics.median(walls), TARGET_MS)]
    settings = {"runs": len(walls), "cpu milliseconds": round(statistics.median(cpu), 1)}
    return Result((), checks, settings | {"fastest": round(min(walls), 1), "slowest": round(max(walls), 1)})


def _children_cpu() -> float:
    import os

    times = os.times()
    return times.children_user + times.children_system
