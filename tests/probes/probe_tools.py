"""Contexts away from where they start, and attention as the literal reference computes it, kept."""

from typing import Any

import tiny
import torch
from reference.literal import literal, modules
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from tunescope import families
from tunescope.fitting import initialised
from tunescope.registry import parse

FAMILIES = families.names()
KEPT: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}


def keeping(module: Any, *args: Any, **kwargs: Any) -> Any:
    output, weights = literal(module, *args, **kwargs)
    KEPT[module] = (output.transpose(1, 2), weights)
    return output, weights


AttentionInterface.register("literal-keeping", keeping)
AttentionMaskInterface.register("literal-keeping", eager_mask)


def literally(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """ "decoder.0.self" -> head outputs and weights of the bare model, row by row and head by head: not our code."""
    before = model.config._attn_implementation
    model.set_attn_implementation("literal-keeping")
    try:
        with torch.no_grad(), tiny.Float64():
            model(**inputs)
        return {name: KEPT[module] for name, module in modules(model).items()}
    finally:
        model.set_attn_implementation(before)
        KEPT.clear()


def away(model: Any, arm: str, *, by: float = 0.3, seed: int = 3) -> list[Any]:
    """The arm's artifacts, off where they start, so that what tuning changes is not zero by construction."""
    artifacts = initialised(model, parse(arm), tiny.tokenizer(), 0)
    generator = torch.Generator().manual_seed(seed)
    for artifact in artifacts:
        for name, value in artifact.tensors.items():
            if value.is_floating_point():
                noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
                artifact.tensors[name] = value + by * noise
    return artifacts
