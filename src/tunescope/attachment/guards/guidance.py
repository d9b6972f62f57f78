"""Classifier-free guidance: `generate` reads a second text beside its rows, whose output begins elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transformers import UnbatchedClassifierFreeGuidanceLogitsProcessor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def guidance(model: PreTrainedModel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The scale that a call of `generate` takes, 1 for none: its own, its config's, or else the model's."""
    for one in kwargs.get("logits_processor") or ():
        if isinstance(one, UnbatchedClassifierFreeGuidanceLogitsProcessor):
            return float(one.guidance_scale)
    if "guidance_scale" in kwargs:
        return float(kwargs["guidance_scale"] or 1)
    config = kwargs.get("generation_config", args[1] if len(args) > 1 else None)
    for one in (config, getattr(model, "generation_config", None)):
        scale = getattr(one, "guidance_scale", None)
        if scale is not None:
            return float(scale)
    return 1.0
