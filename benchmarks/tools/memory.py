"""The memory that a training step takes, each variant in a process of its own.

What is reported is how far the peak of resident memory rises during two steps above what is resident before them, with
the model loaded and one step already done (so that what torch sets up once is not counted) and freed memory returned.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RETURNING = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")  # mallopt(3): fixed, they no longer grow
LEAST = 2**17  # bytes


def megabytes(benchmark: str, variant: str, tiny: bool, *, returned: bool = False, what: str = "memory") -> float:
    """Peak of a variant of a benchmark that has `step(variant, scale)`, in megabytes.

    returned: glibc gives every block back to the system when it is freed, so that what is resident is in use. what:
    "private" for what that program of this folder prints instead.
    """
    command = [sys.executable, "-m", f"benchmarks.tools.{what}", benchmark, variant, *(["--tiny"] if tiny else [])]
    environment = os.environ | (dict.fromkeys(RETURNING, str(LEAST)) if returned else {})
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def main(benchmark: str, variant: str, *flags: str) -> None:
    import torch

    from benchmarks.tools.models import FULL, TINY
    from benchmarks.tools.where import device
    from tunescope.system.machine import memory_meter

    torch.set_num_threads(1)
    step = importlib.import_module(f"benchmarks.{benchmark}").step(variant, TINY if flags else FULL)
    step()
    on_device = device().type == "cuda"
    before = torch.cuda.memory_allocated() / 2**20 if on_device else 0.0
    taken = memory_meter(device())
    step()
    step()
    print(taken() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
