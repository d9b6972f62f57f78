"""Worker processes that are soon at work: one process imports what all of them need, and they are forks of it.

It may begin before this process has imported anything itself, so this file imports nothing large.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import BaseContext
from pathlib import Path

NEEDED = "tunescope.comparing.pool"


def context() -> BaseContext:
    """What worker processes are made with; where there is no such process to fork, each imports for itself."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([NEEDED])
    return made


def begin(model: str, workers: int) -> None:
    """Start importing in the background, if this may come to several workers; 0 is as many as there is room for."""
    several = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) > 1
    if workers > 1 or (workers == 0 and several and Path(model).is_dir()):
        made = context()
        if made.get_start_method() == "forkserver":
            from multiprocessing.forkserver import ensure_running

            ensure_running()
