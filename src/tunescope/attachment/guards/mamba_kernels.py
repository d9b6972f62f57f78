"""Mamba's kernels for training take the weights of a layer's maps and call none of them, so that no delta would act.

Transformers goes that way where the kernels are installed, the layer is in training mode and there is no cache. With
that mode off the layer calls its maps, and computes the same; the mode means nothing else to it.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from tunescope.attachment.guards.compiled import uncompiled

# what the layers call where they can, in the files of transformers
KERNELS = ("mamba_inner_fn", "mamba_split_conv1d_scan_combined", "mamba2_split_conv1d_scan_combined")


@contextmanager
def unfused(model: nn.Module) -> Iterator[None]:
    """Within it such layers call their maps in training too; their mode is their own again after each call."""
    inside: Counter[nn.Module] = Counter()  # calls of a layer that trains, of several threads
    lock = threading.Lock()

    def before(layer: nn.Module, _args: object) -> None:
        with lock:
            if layer.training or inside[layer]:
                inside[layer] += 1
                layer.training = False

    def after(layer: nn.Module, _args: object, _output: object) -> None:
        with lock:
            if inside[layer]:
                inside[layer] -= 1
                layer.training = not inside[layer]

    handles: list[Any] = []
    try:
        for layer in filter(_has_kernels, model.modules()):
            handles.append(layer.register_forward_pre_hook(uncompiled(before)))
            handles.append(layer.register_forward_hook(uncompiled(after), always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for layer in +inside:  # an interrupt cut a call short, for which torch calls no hook
            layer.training = True


def _has_kernels(module: nn.Module) -> bool:
    """Whether it is a layer with a convolution and maps beside it, in a file that has such a kernel."""
    file = sys.modules.get(type(module).__module__)
    return "conv1d" in module._modules and any(hasattr(file, name) for name in KERNELS)
