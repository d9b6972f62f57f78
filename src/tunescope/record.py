"""Run a model once and keep the tensors asked for. Looking at them is the probes' job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.attention import STATE, LayerState
from tunescope.errors import UserError
from tunescope.reach import reached, switched

KEPT = ("query", "key", "value", "weights", "output")


def record(model: Any, inputs: Mapping[str, Any], *names: str) -> dict[str, Tensor]:
    """ "decoder.0.self.weights" -> tensor, for every attention module and every name asked for, without gradients.

    Names: "query" (batch, heads, query, d), "key" and "value" (batch, kv_heads, keys, d) of the text alone, after
    rotary positions, "weights" (batch, heads, query, contexts + keys) with the contexts' columns first, "output"
    (batch, heads, query, d). It sees whatever is attached to the model at the time, and leaves it as it was.

    Raises UserError for an unknown name, and for a family whose attention is not reached.
    """
    if not names or not set(names) <= set(KEPT):
        raise UserError(f"record keeps {', '.join(KEPT)}; it was asked for {', '.join(names) or 'nothing'}.")
    kept: dict[str, Tensor] = {}
    places = {found.module: found.name for found in reached(model)}

    def keep(module: nn.Module, seen: dict[str, Tensor | None]) -> None:
        for name in names:
            value = seen[name]
            assert value is not None
            kept[f"{places[module]}.{name}"] = value.detach()

    bare = [module for module in places if STATE not in module.__dict__]
    try:
        for module in places:
            module.__dict__.setdefault(STATE, LayerState()).keep = keep
        with switched(model), torch.no_grad():
            model(**inputs)
    finally:
        for module in places:
            module.__dict__[STATE].keep = None
        for module in bare:
            del module.__dict__[STATE]
    return kept
