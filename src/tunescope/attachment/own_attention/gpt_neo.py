"""GPT-Neo: `_attn`, without scaling; every second layer sees a window of the text, and of what stands in front."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.own import OwnAttention, StandIn, of_class
from tunescope.attachment.own_attention import _scores

POSITIONS = "_tunescope_positions"  # of the queries, kept with the mask of their pass


class _Told:
    """What the model embedded last: the queries' positions, which it gives to no layer."""

    positions: Tensor | None = None
    is_new = False

    def embedding(self, inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def forward(position_ids: Tensor) -> Tensor:
            self.positions, self.is_new = position_ids, True
            return inner(position_ids)

        return forward

    def of(self, mask: Tensor | None) -> Tensor | None:
        """Those of the pass with this mask: a layer that is computed again has its own, whatever has run since."""
        if mask is None or torch.compiler.is_compiling():  # a graph is of one pass
            return self.positions
        if self.is_new:
            mask.__dict__[POSITIONS] = self.positions
            self.is_new = False
        return mask.__dict__.get(POSITIONS)


def stand_ins(model: nn.Module) -> list[StandIn]:
    """`_attn` of every layer, and the embedding of positions, which is as it was but for telling them."""
    told, embeds = _Told(), of_class(model, "GPTNeoModel")[0].wpe
    layers = of_class(model, "GPTNeoSelfAttention")
    within = [StandIn(layer, "_attn", partial(_attended, layer, told)) for layer in layers]
    return [*within, StandIn(embeds, "forward", told.embedding(embeds.forward))]


def _attended(
    module: Any,
    told: _Told,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    positions, keys = told.of(attention_mask), key.shape[2]
    near = module.bias[:, :, keys - query.shape[2] : keys, :keys]  # by columns, as the family does
    mask = near if attention_mask is None else _both(attention_mask, near)
    window = {"sliding_window": module.config.window_size, "position_ids": positions}
    window = window if module.attention_type == "local" else {}
    return _scores.attended(module, query, key, value, mask, scaling=1.0, **window)


def _both(mask: Tensor, near: Tensor) -> Tensor:
    return mask & near if mask.dtype == torch.bool else mask.masked_fill(~near, torch.finfo(mask.dtype).min)


OWN = OwnAttention(stand_ins)
