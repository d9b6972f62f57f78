"""The private memory that something takes, in megabytes: pages of files, which the system drops, do not count.

python -m benchmarks.tools.private BENCHMARK VARIANT [--tiny], of a benchmark that has `held(variant, scale)`.
"""

from __future__ import annotations

import gc
import importlib
import re
import sys
from pathlib import Path


def private() -> float:
    """Megabytes of this process that no file holds."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 2**10


def main(benchmark: str, variant: str, *flags: str) -> None:
    import torch

    from benchmarks.tools.models import FULL, TINY

    torch.set_num_threads(1)
    module = importlib.import_module(f"benchmarks.{benchmark}")
    module.held(variant, TINY)  # what is imported and set up once
    gc.collect()
    before = private()
    held = module.held(variant, TINY if flags else FULL)
    gc.collect()
    print(private() - before)
    del held


if __name__ == "__main__":
    main(*sys.argv[1:])
