"""Ways of a model that a pass does not show, though they are there: through zeros, and past the end of a clip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SMALL = 0.02  # the deviation of what stands in the place of zeros
FAR = 1e30


@contextmanager
def no_zeros(model: PreTrainedModel) -> Iterator[None]:
    """Within it weights of zeros, as an ablation leaves them, hold small random numbers; then they are as they were.

    A low-rank change of peft's that has learned nothing yet is no such weight: it is no way of the model's own.
    """
    named = model.base_model.named_parameters()
    empty = [one for name, one in named if one.dim() > 1 and "lora_" not in name and _is_zero(one)]
    kept = [one.detach().clone() for one in empty]
    draw = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for one in empty:
                one.copy_(SMALL * torch.randn(one.shape, generator=draw, device="cpu"))
        yield
    finally:
        with torch.no_grad():
            for one, before in zip(empty, kept, strict=True):
                one.copy_(before)


@contextmanager
def no_clips(model: PreTrainedModel) -> Iterator[None]:
    """Within it queries, keys and values go as they are, of which OLMo and DBRX clip what is large (`clip_qkv`)."""
    modules = list(model.base_model.modules())
    holders: dict[int, Any] = {id(one): one for module in modules for one in (module, getattr(module, "config", None))}
    told = [(one, getattr(one, "clip_qkv", None)) for one in holders.values()]
    kept = [(one, found) for one, found in told if isinstance(found, int | float)]
    try:
        for one, _ in kept:
            one.clip_qkv = FAR
        yield
    finally:
        for one, found in kept:
            one.clip_qkv = found


def _is_zero(weight: Tensor) -> bool:
    """What begins with another number is not looked through, as a large model is nearly everywhere."""
    if not weight.is_floating_point() or weight.is_meta or weight.is_inference() or not weight.numel():
        return False
    return not weight[0].any() and not weight.any()
