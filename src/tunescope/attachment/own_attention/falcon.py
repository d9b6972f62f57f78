"""Falcon: the whole forward of its attention. Positions are rotary, or ALiBi's, whose biases are in the mask too.

Layers of the new architecture give each query head a copy of its group's keys, before the cache, and here too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb, build_alibi_tensor

from tunescope.attachment.attention.function import attention
from tunescope.attachment.attention.own import OwnAttention, StandIn, dropped, of_class
from tunescope.attachment.own_attention import _alibi
from tunescope.errors import UserError


def stand_ins(model: nn.Module) -> list[StandIn]:
    """`forward` of every attention module; with ALiBi also of the model, so that positions are the text's own.

    Raises UserError for ALiBi in "eager", where the family adds its biases twice.
    """
    base = of_class(model, "FalconModel")[0]
    within = [StandIn(module, "forward", partial(_forward, module)) for module in of_class(model, "FalconAttention")]
    if not base.use_alibi:
        return within
    if base.config._attn_implementation == "eager":
        raise UserError(
            "Transformers adds Falcon's ALiBi biases twice with attn_implementation='eager', which tunescope does not. "
            "Load the model with attn_implementation='sdpa'."
        )
    return [*within, StandIn(base, "forward", _positioned(base, base.forward))]


def _positioned(model: nn.Module, inner: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return inner(**_alibi.called(model, args, kwargs).given)

    return forward


def _forward(
    module: Any,
    hidden_states: Tensor,
    alibi: Tensor | None,
    attention_mask: Tensor | None,
    position_ids: Tensor | None = None,
    layer_past: Any = None,
    output_attentions: bool = False,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    split = module._split_heads(module.query_key_value(hidden_states))
    query, key, value = (part.transpose(1, 2) for part in split)
    if alibi is None:
        query, key = _rotated(query, key, position_embeddings)
    seen = 0
    if layer_past is not None:
        seen = int(layer_past.get_seq_length(module.layer_idx))
        key, value = layer_past.update(key, value, module.layer_idx)
    told: dict[str, Any] = {"scaling": module.inv_norm_factor, "output_attentions": output_attentions}
    if alibi is None:  # which drops no weights, unlike the other
        out, weights = attention(module, query, key, value, attention_mask, is_causal=True, **told)
    else:
        assert attention_mask is not None and position_ids is not None
        visible = attention_mask[:, :1] > torch.finfo(attention_mask.dtype).min / 2
        at = _at(visible, position_ids, seen)
        biases = partial(_biases, module.num_heads, module.inv_norm_factor, query.dtype)
        told["dropout"] = dropped(module.attention_dropout)
        out, weights = _alibi.attended(module, query, key, value, visible, at, biases, **told)
    projected: Tensor = module.dense(out.flatten(2))
    return projected, weights


def _rotated(query: Tensor, key: Tensor, by: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    assert by is not None
    turned: tuple[Tensor, Tensor] = apply_rotary_pos_emb(query, key, *by)
    return turned


def _at(visible: Tensor, position_ids: Tensor, seen: int) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys: by what the last query sees, as far on as the queries are said to stand."""
    text = (visible[:, 0, -1].long().cumsum(-1) - 1).clamp(min=0)  # (batch or 1, keys)
    text = text + position_ids.amax(-1, keepdim=True) - text.amax(-1, keepdim=True)
    return text[:, seen : seen + visible.shape[2]], text


def _biases(n_heads: int, scaling: float, dtype: torch.dtype, positions: Tensor) -> Tensor:
    """In bfloat16 and then scaled, as the family does."""
    ones = torch.ones(1, 2, dtype=torch.long, device=positions.device)
    slopes: Tensor = build_alibi_tensor(ones, n_heads, torch.bfloat16)[:, 0, 1]  # of the key at position 1
    return (slopes[:, None] * positions[:, None]).to(dtype) * scaling


OWN = OwnAttention(stand_ins, reference="sdpa")
