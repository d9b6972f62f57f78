"""Families whose attention modules have a method `_attn` of queries, keys and values after positions and cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.function import attention
from tunescope.attachment.attention.own import StandIn, dropped, of_class


def stand_ins(model: nn.Module, name: str) -> list[StandIn]:
    """Of all modules of that class, with the scaling that they know as `scale_attn`."""
    return [
        StandIn(module, "_attn", partial(attended, module, scaling=1 / module.scale_attn))
        for module in of_class(model, name)
    ]


def attended(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    scaling: float,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """(batch, heads, query, d) and the weights or None. In float32 at least, where these families take their scores."""
    exact = torch.promote_types(query.dtype, torch.float32)
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        attention_mask = attention_mask.to(exact)
    given = (query.to(exact), key.to(exact), value.to(exact))
    share = dropped(module.attn_dropout)
    out, weights = attention(module, *given, attention_mask, share, scaling, is_causal=True, **kwargs)
    return out.transpose(1, 2).to(value.dtype), None if weights is None else weights.to(value.dtype)
