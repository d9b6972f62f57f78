"""Worker processes that are soon at work: one process imports what all of them need, and they are forks of it.

It may begin before this process has imported anything itself, so this file imports nothing large.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path

from tunescope.system.interrupts import children_spared

# NVIDIA's, AMD's, and that of Windows within WSL2: what has asked for one cannot be forked, and imports ask
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
OBJECTS = 50_000
LAST = f"{__package__}.frozen"


@cache
def context(preload: str) -> BaseContext:
    """What worker processes are made with; where such a process cannot be forked, each imports for itself.

    preload: the module that imports what all of them need.
    """
    if sys.platform != "linux" or any(map(os.path.exists, GPUS)):
        return multiprocessing.get_context("spawn")
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([preload, LAST])
    atexit.register(_end)
    return made


def begin(model: str, workers: int, preload: str) -> None:
    """Start importing in the background, if this may come to several workers; 0 is as many as there is room for."""
    several = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) > 1
    wanted = workers > 1 or (workers == 0 and several and Path(model).is_dir())
    if wanted and context(preload).get_start_method() == "forkserver":
        from multiprocessing.forkserver import ensure_running

        with children_spared():
            ensure_running()


def calm() -> None:
    """Look for garbage less often, and not on the way out: torch and transformers leave a million objects."""
    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)


def _end() -> None:
    """The forked process at once: left to itself it takes seconds to put away what it imported, and holds our pipes."""
    from multiprocessing import forkserver

    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is not None:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
