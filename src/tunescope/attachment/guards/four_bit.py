"""4-bit maps that pack themselves for inference pass no gradient any more: while something is attached, none does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_PACKS = "support_avx512bf16_for_cpu"  # on bitsandbytes' 4-bit maps: whether they may pack themselves for inference


@contextmanager
def unpacked(model: nn.Module) -> Iterator[None]:
    """Within it no 4-bit map packs itself for inference on a CPU."""
    maps = [module for module in model.modules() if module.__dict__.get(_PACKS)]
    try:
        for module in maps:
            module.__dict__[_PACKS] = False
        yield
    finally:
        for module in maps:
            module.__dict__[_PACKS] = True
