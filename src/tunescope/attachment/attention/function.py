"""The one attention function. It joins contexts to the text, feeds probes, and is otherwise plain attention.

It is registered with transformers under NAME, and so is the mask function: without the second every mask is None.
State rides on the attention module (`LayerState`, put there and taken away by `attach`), never in a global.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from tunescope.attachment.attention.context import Extra, Told, context_keys, context_visible, over_context

NAME = "tunescope"
STATE = "_tunescope"
# Scores are joined while a head of keys has fewer queries in a row than FEW times the width of a key: then they are
# smaller than the keys and values that would be copied into every row. From there on torch's kernel is faster.
FEW = 1.0
# On a CPU torch's kernel in bfloat16 takes longer than plain products to be trained, for rows of up to so many tokens;
# for twice as many it takes as long. benchmarks/half_training.py measures it.
SHORT = 128
# Tensors among a call's keywords that are acted on here, or say no more than the mask does.
_KNOWN = {"position_bias", "softcap", "s_aux", "indices", "position_ids", "cache_position"}
_KNOWN |= {"cu_seq_lens_q", "cu_seq_lens_k", "seq_idx"}


Changed = Callable[[Tensor, dict[str, Any]], Tensor]


@dataclass(frozen=True)
class Edit:
    """A change to one layer's attention, contexts' columns first; both get the keywords of the call.

    scores: (batch, heads, query, n_context + keys) before softmax, the lowest number where a key is hidden.
    weights: the same after it; what leaves the layer is made with what comes back, whatever it sums to.
    """

    scores: Changed | None = None
    weights: Changed | None = None


@dataclass
class LayerState:
    """What is left on an attention module for the time being, by `attach` and by `editing`."""

    extras: tuple[Extra, ...] = ()
    keep: Callable[[nn.Module, dict[str, Tensor | None]], None] | None = None
    keeps_weights: bool = True  # False: `keep` has no use for the attention weights, so they need not be made
    asked: bool = False  # the model was called with output_attentions, which some families do not pass on
    told: Told | None = None  # what the stack was called with; None where it is run by itself
    edits: tuple[Edit, ...] = ()
    unknown: set[str] | None = None  # where it is a set, it gets the names of tensors that are not known here


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention over [contexts | text] -> ((batch, query, heads, d_value), weights or None), as transformers asks.

    query (batch, heads, query, d), key and value (batch, kv_heads, keys, d), grouped heads not repeated; the mask
    is boolean (True = attend) or additive, over the text's keys alone. Weights, where they are made, have the
    contexts' columns first.
    """
    state: LayerState = module.__dict__.get(STATE) or LayerState()
    if state.unknown is not None:
        state.unknown |= {name for name, value in kwargs.items() if isinstance(value, Tensor)} - _KNOWN
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    kwargs |= _call_facts(state)
    bias, softcap, sink = kwargs.get("position_bias"), kwargs.get("softcap"), kwargs.get("s_aux")
    if attention_mask is None and query.shape[2] > 1 and _is_causal(module, kwargs):
        raise RuntimeError(f"{type(module).__name__} asked for causal attention and gave no mask.")
    if kwargs.get("indices") is not None:
        attention_mask = _chosen(attention_mask, kwargs["indices"], key.shape[2])
    wants_weights = state.asked or bool(kwargs.get("output_attentions"))
    wants_weights = wants_weights or bool(state.edits) or (state.keep is not None and state.keeps_weights)
    few = query.shape[1] // key.shape[1] * query.shape[2] < FEW * query.shape[3]
    scores: Tensor | None = None
    weights: Tensor | None = None
    few = few or bias is not None
    is_plain = softcap is None and sink is None  # what torch's kernel can do
    if wants_weights or not is_plain or (state.extras and few) or _is_slow_to_train(query, key):
        hidden = context_visible(state.extras, query, kwargs)
        scores = _scores(query, key, attention_mask, state.extras, hidden, scaling, bias, softcap)
        scores, weights = _weights(scores, query.dtype, state.edits, kwargs)
        weights = F.dropout(weights, dropout, dropout > 0)
        out = _mix(weights, value, state.extras)
    else:
        out = _fused(query, key, value, attention_mask, state.extras, kwargs, (dropout, scaling, bias))
    if state.keep is not None:
        made = {"scores": scores, "weights": weights, "sink": sink, "output": out}
        kept = {"query": query, "key": key, "value": value, **made}
        state.keep(module, kept)
    return out.transpose(1, 2).contiguous(), weights


def _chosen(mask: Tensor | None, indices: Tensor, n_keys: int) -> Tensor:
    """The mask without the keys that a layer did not choose. indices: (batch, query, chosen), as DeepSeek 3.2 gives."""
    chosen = torch.zeros(*indices.shape[:2], n_keys, dtype=torch.bool, device=indices.device)
    chosen = chosen.scatter(-1, indices.long(), True)[:, None]
    if mask is None:
        return chosen
    return mask & chosen if mask.dtype == torch.bool else mask.masked_fill(~chosen, torch.finfo(mask.dtype).min)


def _call_facts(state: LayerState) -> dict[str, Any]:
    """What the call says and is of use here: the numbers change with every step of decoding."""
    told, found = state.told, {}
    if told is None:
        return {}
    if state.edits or any(extra.infix for extra in state.extras):
        found = {"output_start": told.output_start, "seen": told.seen, "columns": told.columns}
    if told.position_ids is not None and any(extra.at is not None for extra in state.extras):
        found["position_ids"] = told.position_ids if told.padded is None else told.position_ids + told.padded
    return found


def mask_function(*args: Any, **kwargs: Any) -> Tensor | None:
    """The boolean mask of transformers' SDPA, never left out where it is causal and more than one query asks."""
    if kwargs.get("q_length") != 1:
        kwargs["allow_is_causal_skip"] = False
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    return mask


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask_function)


def _is_slow_to_train(query: Tensor, key: Tensor) -> bool:
    """Whether a gradient is asked for that torch's kernel is slow to give; see SHORT."""
    if query.device.type != "cpu" or not query.requires_grad or key.shape[2] > SHORT:
        return False
    computed = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    return computed == torch.bfloat16 and torch.is_grad_enabled()


def _is_causal(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    given = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", False) if given is None else given)


def _scores(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    extras: tuple[Extra, ...],
    visible: Tensor | None,
    scaling: float,
    bias: Tensor | None,
    softcap: float | None,
) -> Tensor:
    """(batch, heads, query, n_context + keys), before softmax. The scores are joined, not the keys."""
    batch, heads, length, width = query.shape
    groups = heads // key.shape[1]
    query = query * scaling
    content = query.reshape(batch, key.shape[1], groups * length, width) @ key.mT
    content = _capped(content.view(batch, heads, length, -1), softcap)
    if bias is not None:
        content = content + bias
    lowest = torch.finfo(content.dtype).min
    if mask is not None and mask.dtype == torch.bool:  # nobody else has these scores, so they need no copy
        content = (content.masked_fill if content.requires_grad else content.masked_fill_)(~mask, lowest)
    elif mask is not None:
        content = content + mask
    if not extras:
        return content
    joined = _capped(over_context(query, context_keys(extras, query)[0].mT), softcap)
    if visible is not None:
        joined = joined.masked_fill(~visible, lowest)
    return torch.cat([joined, content], -1)


def _weights(
    scores: Tensor, dtype: torch.dtype, edits: tuple[Edit, ...], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The scores and what softmax makes of them, each edited in turn."""
    for edit in edits:
        scores = scores if edit.scores is None else edit.scores(scores, kwargs)
    sink = kwargs.get("s_aux")  # (heads,), a score that each query may give to nothing
    joined = scores if sink is None else torch.cat([scores, _column(sink, scores)], -1)
    weights = joined.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(dtype)
    weights = weights if sink is None else weights[..., :-1]
    for edit in edits:
        weights = weights if edit.weights is None else edit.weights(weights, kwargs)
    return scores, weights


def _column(sink: Tensor, scores: Tensor) -> Tensor:
    """(heads,) as one more key of every query."""
    return sink.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)


def _capped(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if softcap is None else softcap * torch.tanh(scores / softcap)


def _mix(weights: Tensor, value: Tensor, extras: tuple[Extra, ...]) -> Tensor:
    """weights (batch, heads, query, n_context + keys) over the values -> (batch, heads, query, d_value)."""
    batch, heads, length, _ = weights.shape
    kv_heads = value.shape[1]
    n_context = weights.shape[-1] - value.shape[2]
    content = weights[..., n_context:].reshape(batch, kv_heads, -1, value.shape[2]) @ value
    out = content.view(batch, heads, length, -1)
    if not extras:
        return out
    return out + over_context(weights[..., :n_context], context_keys(extras, value)[1])


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    extras: tuple[Extra, ...],
    kwargs: dict[str, Any],
    settings: tuple[float, float, Tensor | None],
) -> Tensor:
    """Torch's kernel, over joined keys and values where there are contexts: memory linear in the length."""
    dropout, scaling, bias = settings
    if bias is not None:
        mask = bias if mask is None else _additive(mask, bias.dtype) + bias
    if extras:
        visible = context_visible(extras, query, kwargs)
        n_context = sum(extra.key.shape[-2] for extra in extras)
        if mask is not None or visible is not None:
            mask = _joined_mask(mask, visible, (query.shape[0], query.shape[2], n_context, key.shape[2]), query)
        more_keys, more_values = context_keys(extras, key)
        query = query.contiguous()  # a view would keep the text's keys and values a second time for the backward pass
        key = torch.cat([more_keys.expand(key.shape[0], *more_keys.shape[-3:]), key], 2)
        value = torch.cat([more_values.expand(value.shape[0], *more_values.shape[-3:]), value], 2)
    groups, shape = query.shape[1] // key.shape[1], query.shape[:3]
    if groups > 1 and not _takes_groups(query, key, value, mask):
        if shape[2] == 1 and (mask is None or mask.shape[1] == 1):  # a head of keys has its group's queries in one row
            query = query.reshape(shape[0], -1, groups, query.shape[3])
        else:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    out = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.reshape(*shape, -1)


def _takes_groups(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether torch's kernel is to have grouped heads as they are.

    On CUDA only what makes all scores at once has them together with a mask, or with wide or different heads.
    """
    return query.device.type != "cuda" or (mask is None and key.shape[-1] == value.shape[-1] <= 256)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def _joined_mask(
    mask: Tensor | None, visible: Tensor | None, sizes: tuple[int, int, int, int], query: Tensor
) -> Tensor:
    """The text's mask, widened on the left by what is seen of the contexts."""
    batch, length, n_context, n_keys = sizes
    if mask is None:
        mask = torch.ones(1, 1, 1, n_keys, dtype=torch.bool, device=query.device)
    if visible is None:
        visible = torch.ones(1, 1, 1, n_context, dtype=torch.bool, device=query.device)
    left: Tensor = visible if mask.dtype == torch.bool else _additive(visible, mask.dtype)
    heads = mask.shape[1]  # 1, but for what masks each head for itself
    return torch.cat([left.expand(batch, heads, length, n_context), mask.expand(batch, heads, length, n_keys)], -1)
