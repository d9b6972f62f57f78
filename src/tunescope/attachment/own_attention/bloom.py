"""BLOOM: the whole forward of its attention, which adds the residual too; positions are ALiBi's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from tunescope.attachment.attention.own import OwnAttention, StandIn, dropped, of_class
from tunescope.attachment.own_attention import _alibi


class _Told:
    """The call of the model that is on; in the place of biases its layers are given the positions of the keys."""

    call: _alibi.Pass

    def entry(self, model: nn.Module, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The model's forward, which now takes position_ids too: contexts in front move the text by them."""

        @wraps(inner)
        def forward(*args: Any, **kwargs: Any) -> Any:
            call = self.call = _alibi.called(model, args, kwargs)
            return inner(**{**call.given, "attention_mask": _mask(call)})

        taken = inspect.signature(inner)
        extra = inspect.Parameter("position_ids", inspect.Parameter.KEYWORD_ONLY, default=None)
        others = [one for name, one in taken.parameters.items() if name != "position_ids"]
        forward.__signature__ = taken.replace(parameters=[*others[:-1], extra, others[-1]])  # type: ignore[attr-defined]
        return forward

    def positions(self, attention_mask: Tensor, *_: object, **__: object) -> Tensor:
        """(batch, keys), in the place of `build_alibi_tensor`."""
        return (attention_mask.long().cumsum(-1) - 1).clamp(min=0) + self.call.moved


def stand_ins(model: nn.Module) -> list[StandIn]:
    """`forward` of every attention module, and what makes their biases."""
    told, base = _Told(), of_class(model, "BloomModel")[0]
    within = [StandIn(module, "forward", partial(_forward, module)) for module in of_class(model, "BloomAttention")]
    entry = told.entry(base, base.forward)
    return [*within, StandIn(base, "forward", entry), StandIn(base, "build_alibi_tensor", told.positions)]


def _mask(call: _alibi.Pass) -> Tensor:
    """The mask given, or one of all columns that there are: without one the family makes its biases elsewhere."""
    mask, past = call.given.get("attention_mask"), call.given.get("past_key_values")
    if mask is not None:
        return torch.as_tensor(mask)
    columns = call.length if past is None else past.get_mask_sizes(call.length, 0)[0]
    text = call.given["inputs_embeds"] if call.given.get("input_ids") is None else call.given["input_ids"]
    return torch.ones(len(text), columns, dtype=torch.long, device=text.device)


def _forward(
    module: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Tensor | None,
    layer_past: Any = None,
    output_attentions: bool = False,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """`alibi`: the positions of the keys."""
    query, key, value = module._reshape(module.query_key_value(hidden_states))
    seen = 0
    if layer_past is not None:
        seen = int(layer_past.get_seq_length(module.layer_idx))
        key, value = layer_past.update(key, value, module.layer_idx)
    at = (alibi[:, seen : seen + query.shape[2]], alibi)
    biases = partial(_biases, module.num_heads, query.dtype)
    settings = {"dropout": dropped(module.attention_dropout), "scaling": module.inv_norm_factor}
    out, weights = _alibi.attended(
        module, query, key, value, attention_mask, at, biases, output_attentions=output_attentions, **settings
    )
    added = F.dropout(_projected(module, out.flatten(2)), module.hidden_dropout, module.training)
    return residual + added, weights


def _biases(n_heads: int, dtype: torch.dtype, positions: Tensor) -> Tensor:
    ones = torch.ones(1, 2, dtype=torch.long, device=positions.device)
    slopes: Tensor = build_alibi_tensor(ones, n_heads, torch.float32)[:, 0, 1]  # of the key at position 1
    return (slopes[:, None] * positions[:, None]).to(dtype)


def _projected(module: Any, out: Tensor) -> Tensor:
    """By slices where the config asks for them, as the family does."""
    if module.pretraining_tp <= 1 or not module.slow_but_exact:
        return module.dense(out)  # type: ignore[no-any-return]
    parts = zip(out.chunk(module.pretraining_tp, -1), module.dense.weight.chunk(module.pretraining_tp, -1), strict=True)
    return sum((F.linear(part, weight) for part, weight in parts), torch.zeros_like(out))


OWN = OwnAttention(stand_ins)
