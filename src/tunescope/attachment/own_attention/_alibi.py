"""Attention with linear biases (Press et al. 2021, arXiv:2108.12409), and contexts in front of it.

A family adds slope * position of the key, which softmax takes for slope * (key - query). Among contexts that is said: a
key at a position has the bias of its distance, as in the row; a free one, as of a prefix, has none at any distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.context import FREE, Extra
from tunescope.attachment.attention.function import STATE, Edit, LayerState, attention
from tunescope.models.anatomy import argument_names
from tunescope.models.positions import seen_by, text_positions

Alibi = Callable[
    [Tensor], Tensor
]  # positions (batch or 1, n) -> biases (batch or 1, heads, n), rounded as the family's


@dataclass(frozen=True)
class Pass:
    """What the base model was called with: (batch or 1, query) positions of the queries, and where they stand."""

    given: dict[str, Any]
    seen: int
    length: int
    positions: Tensor
    moved: Tensor  # (batch or 1, 1), how much further on the text stands than by its mask


def called(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pass:
    """A call of a base model. Where no positions are given they are the text's own, whichever side is padded."""
    given = dict(zip(argument_names(model), args, strict=False)) | kwargs
    text = given["inputs_embeds"] if given.get("input_ids") is None else given["input_ids"]
    seen, length = seen_by(given), text.shape[1]
    own = text_positions(given.get("attention_mask"), seen, length, text.device)
    positions = given.get("position_ids")
    positions = own if positions is None else positions
    moved = positions.amax(-1, keepdim=True) - own.amax(-1, keepdim=True)
    return Pass({**given, "position_ids": positions}, seen, length, positions, moved)


def attended(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    at: tuple[Tensor, Tensor],
    alibi: Alibi,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """As `attention`; `at` are the positions of queries (batch or 1, query) and of keys (batch or 1, keys)."""
    bias = alibi(at[1])[:, :, None]
    extras = module.__dict__.get(STATE, LayerState()).extras
    if not extras:
        return attention(module, query, key, value, mask, position_bias=bias, is_causal=True, **kwargs)
    of_query = alibi(at[0])[..., None]
    with _standing(module, extras, alibi, of_query):
        bias = bias - of_query  # (batch, heads, query, keys)
        return attention(module, query, key, value, mask, position_bias=bias, is_causal=True, **kwargs)


@contextmanager
def _standing(module: nn.Module, extras: tuple[Extra, ...], alibi: Alibi, of_query: Tensor) -> Iterator[None]:
    """Within it the scores of contexts' keys that stand at positions have their bias, before any other edit."""
    if all(extra.at is None for extra in extras):
        yield
        return
    parts = [_biases(extra, alibi, of_query) for extra in extras]
    rows = max(len(part) for part in parts)
    biases = torch.cat([part.expand(rows, -1, -1, -1) for part in parts], -1)
    n_context = biases.shape[-1]

    def biased(scores: Tensor, _kwargs: dict[str, Any]) -> Tensor:
        return torch.cat([scores[..., :n_context] + biases, scores[..., n_context:]], -1)

    state: LayerState = module.__dict__[STATE]
    module.__dict__[STATE] = replace(state, edits=(Edit(scores=biased), *state.edits))
    try:
        yield
    finally:
        module.__dict__[STATE] = state


def _biases(extra: Extra, alibi: Alibi, of_query: Tensor) -> Tensor:
    """(batch or 1, heads, query, n) of one context's keys."""
    n = extra.key.shape[-2]
    if extra.at is None:
        return torch.zeros_like(of_query[:1]).expand(-1, -1, -1, n)
    at = extra.at.to(of_query.device).view(-1, n)
    free = at == FREE
    return (alibi(at.masked_fill(free, 0))[:, :, None] - of_query).masked_fill(free[:, None, None], 0)
