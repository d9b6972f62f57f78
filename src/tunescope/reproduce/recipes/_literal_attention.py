"""Attention written out, with contexts as their forms say: every head's own output, and what is added to it.

No line of it is shared with `tunescope.attachment.attention.function`. Queries, keys, values and masks are those that
transformers makes; the context's keys and values stand beside the text's, never joined to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from tunescope.methods.form import Form
from tunescope.reproduce.recipes._formula import Names, computed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "tunescope-literal"
STATE = "_tunescope_literal"


@dataclass(frozen=True)
class Added:
    """A context of one attention module: its form, keys (kv_heads, n, d_key) and values (kv_heads, n, d_value).

    start: (batch,), the first query of each row that sees it; None: all do.
    """

    form: Form
    key: Tensor
    value: Tensor
    start: Tensor | None = None


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """(batch, query, heads, d_value), as transformers asks, from query (batch, heads, query, d) and so on."""
    batch, n_heads, length, width = query.shape
    scale = width**-0.5 if scaling is None else scaling
    cap = kwargs.get("softcap")

    def score(queries: Tensor, keys: Tensor) -> Tensor:
        plain = queries @ keys.mT * scale
        return plain if cap is None else torch.tanh(plain / cap) * cap

    scores = score(query, _each_head(key, n_heads))
    for more in (kwargs.get("position_bias"), attention_mask):
        scores = scores if more is None else scores + more
    heads = torch.softmax(scores, -1) @ _each_head(value, n_heads)
    added: Added | None = module.__dict__.get(STATE)
    if added is None:
        return heads.transpose(1, 2).contiguous(), None
    own = {"key": _each_head(added.key, n_heads), "value": _each_head(added.value, n_heads)}
    taken = score(query, own["key"]).exp().sum(-1)  # (batch, heads, query)
    share = taken / (taken + scores.exp().sum(-1))
    if added.start is not None:
        share = share * (torch.arange(length) >= added.start[:, None])[:, None]
    seen = {"q": _side_by_side(query), "h": _side_by_side(heads), "share": share.transpose(1, 2)}
    names = Names(seen, own, n_heads, {"score": score})
    seen["change"] = computed(added.form.change, names)
    return computed(added.form.composition, names).view(batch, length, n_heads, -1), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)


@contextmanager
def written_out(model: PreTrainedModel, added: Mapping[nn.Module, Added]) -> Iterator[None]:
    """Within it the model's attention is the one above, with these contexts; afterwards its own again."""
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(NAME)
        for module, one in added.items():
            module.__dict__[STATE] = one
        yield
    finally:
        for module in added:
            module.__dict__.pop(STATE, None)
        model.set_attn_implementation(before)


def _each_head(shared: Tensor, n_heads: int) -> Tensor:
    """Keys or values (..., kv_heads, n, d), repeated for every query head of a group."""
    return shared.repeat_interleave(n_heads // shared.shape[-3], -3)


def _side_by_side(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2)
