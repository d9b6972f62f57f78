"""Models whose linear maps are quantised by torchao or bitsandbytes: what can be read of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.models.split import is_split


def is_quantised(value: Tensor) -> bool:
    """Whether a parameter is stored as anything but plain floating-point numbers."""
    return not is_split(value) and (type(value) not in (Tensor, nn.Parameter) or not value.is_floating_point())


def readable(value: Tensor) -> Tensor:
    """A quantised tensor as the numbers that it stands for; of 4-bit codes, how many there are of each.

    bitsandbytes puts them in another order when it packs them for inference, so that their order says nothing.
    """
    if hasattr(value, "quant_state"):
        codes = value.data.contiguous().view(torch.uint8).flatten()
        return torch.bincount(torch.cat([codes & 15, codes >> 4]).int(), minlength=16)
    value = value.detach()
    if is_split(value):
        whole: Tensor = value.full_tensor()  # type: ignore[attr-defined]
        return whole
    return value.dequantize() if is_quantised(value) and value.is_floating_point() else value


def check_readable(model: nn.Module) -> None:
    """UserError for torch's own quantised modules: their weights are packed away, and no gradient passes them."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.ao.nn.quantized"):
            kind = f"{type(module).__module__}.{type(module).__name__}"
            raise UserError(
                f"{name!r} is a {kind}, which passes no gradient and shows no weight: quantise the model with "
                "torchao or bitsandbytes, or load it in bfloat16."
            )


def check_trainable(model: nn.Module) -> None:
    """UserError for 4-bit maps that have run on a CPU and packed themselves: they pass no gradient any more."""
    for name, module in model.named_modules():
        state = getattr(getattr(module, "weight", None), "quant_state", None)
        if getattr(state, "packing_format_for_cpu", False):
            raise UserError(
                f"{name!r} was packed for inference by bitsandbytes when the model ran, and passes no gradient any "
                "more: load the model anew, and attach before it runs."
            )
