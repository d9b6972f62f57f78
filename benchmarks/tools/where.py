"""The device that is measured: the CPU, or what TUNESCOPE_BENCH_DEVICE names (processes of their own inherit it)."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

VARIABLE = "TUNESCOPE_BENCH_DEVICE"
# What needs no accelerator, or is about the CPU.
CPU_ONLY = ("anchors", "beams", "costs", "label_words", "metrics", "search", "seeds_together", "startup")


def device() -> torch.device:
    return torch.device(os.environ.get(VARIABLE, "cpu"))


def placed(value: Any) -> Any:
    """A model or tensor, there."""
    return value.to(device())


def clock() -> float:
    """Seconds of this process's CPU; on an accelerator seconds by the clock, once it has done all that was asked."""
    if device().type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()
