"""One thread a process: tiny models gain nothing from more, and the runs of others lose. `tools/` is on the path."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "tools"))
torch.set_num_threads(1)

from extension import plugin_folder  # noqa: E402, F401
