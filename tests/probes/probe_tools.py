"""Contexts away from where they start, and attention as the literal reference computes it, kept."""

from typing import Any

import tiny
import torch
from reference.literal import literal, modules
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from tunescope.models.family import family_names

FAMILIES = family_names()
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
