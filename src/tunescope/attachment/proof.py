"""Whether what stands in front of a decoder's text is what it should be: proved on a small twin.

By rows longer than every window, padded on either side, and read in two calls, against the rows alone; words in front
against the same words in the row.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.attention.twin import VOCABULARY, twin, twin_config
from tunescope.attachment.contexts import placed
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.soft import Soft
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LENGTHS, _CUT = (11, 7), 5  # of the rows, and of the first of two calls
_UNKNOWN = "its attention gets something that tunescope does not know, and a text comes out otherwise"
_ALLOWED = 1e-4  # of the largest state: norms and softmax are in float32 even there

_KNOWN: dict[tuple[type, str, bool], str | None] = {}


def difference(model: PreTrainedModel, *, of_words: bool) -> str | None:
    """What is otherwise than it should be, for a person to read; None for nothing, or where no twin can be made.

    of_words: in front are words, and else free keys and values. Found out once for a class and what its layers are.
    """
    try:
        told = twin_config(model.config)
        if told is None:
            return None
        key = (type(model), json.dumps(told, sort_keys=True, default=str), of_words)
        if key not in _KNOWN:
            _KNOWN[key] = None
            with torch.device("cpu"), torch.autocast("cpu", enabled=False):
                _KNOWN[key] = (_tried if of_words else _tried_free)(twin(model, told))
    except Exception:  # the twin is ours: what it cannot do says nothing of the model
        return None
    return _KNOWN[key]


@torch.no_grad()
def _tried(small: PreTrainedModel) -> str | None:
    """The first thing that differs with a context in place and not without one."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (len(_LENGTHS), max(_LENGTHS)), generator=draw)
    rows = [ids[row, :length] for row, length in enumerate(_LENGTHS)]
    table = anatomy(small).table
    front = table(torch.randint(3, VOCABULARY, (3,), generator=draw)).flip(-1).clone()  # no token's
    alone = _each(small, rows, True)
    try:
        whole = [_states(small, inputs_embeds=torch.cat([front, table(one)])[None])[0, len(front) :] for one in rows]
    except Exception as problem:
        return _failing(problem)
    if not all(states.isfinite().all() for states in whole):  # random weights can be too much for a family
        return None
    with switched(small):
        if not _is_as(_each(small, rows, True), alone):
            return _UNKNOWN
    tried = [way for way in _WAYS if _is_right(small, way, rows, alone)]
    before = [value._version for value in (front, *small.parameters())]
    with placed(small, [Artifact(Soft(length=len(front)), {"embeddings": front})]):
        for way in tried:
            try:
                if not _is_as(_WAYS[way](small, rows, False), whole):
                    return way
            except Exception as problem:
                return _failing(problem)
    if before != [value._version for value in (front, *small.parameters())]:
        return "the embeddings are written into"
    return None


@torch.no_grad()
def _tried_free(small: PreTrainedModel) -> str | None:
    """The first thing that differs with free keys and values in place and not without any."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (len(_LENGTHS), max(_LENGTHS)), generator=draw)
    rows = [ids[row, :length] for row, length in enumerate(_LENGTHS)]
    alone = _each(small, rows, True)
    if not all(states.isfinite().all() for states in alone):
        return None
    with switched(small):
        if not _is_as(_each(small, rows, True), alone):
            return _UNKNOWN
    tried = [way for way in _WAYS if _is_right(small, way, rows, alone)]
    with placed(small, [Artifact(Prefix(length=2, positions="same"), _drawn(small, draw))]):
        whole = _each(small, rows, False)
        return next((way for way in tried if not _is_as(_WAYS[way](small, rows, False), whole)), None)


def _drawn(small: PreTrainedModel, draw: torch.Generator) -> Params:
    tensors = {}
    for place in reached(small):
        heads, key, value = place.shape
        for kind, width in (("key", key), ("value", value)):
            tensors[f"{place.name}.{kind}"] = torch.randn(heads, 2, width, generator=draw, dtype=torch.float64)
    return tensors


def _failing(problem: Exception) -> str:
    return f"its own code fails ({type(problem).__name__}: {' '.join(str(problem).split())[:200]})"


def _is_right(small: PreTrainedModel, way: str, rows: list[Tensor], alone: list[Tensor]) -> bool:
    """Whether the bare model does so what it should: else a context is not to blame."""
    try:
        with switched(small):  # the family's own eager attention makes NaN of padding in float64
            return _is_as(_WAYS[way](small, rows, True), alone)
    except Exception:
        return False


def _is_as(got: list[Tensor], expected: list[Tensor]) -> bool:
    return all(
        bool((one - other).abs().max() <= _ALLOWED * other.abs().max())
        for one, other in zip(got, expected, strict=True)
    )


def _states(small: PreTrainedModel, **given: Tensor) -> Tensor:
    states: Tensor = small.base_model(**given, use_cache=False)[0]
    return states


def _each(small: PreTrainedModel, rows: list[Tensor], _told: bool) -> list[Tensor]:
    return [_states(small, input_ids=one[None])[0] for one in rows]


def _on_right(small: PreTrainedModel, rows: list[Tensor], told: bool) -> list[Tensor]:
    return _padded(small, rows, told, on_left=False)


def _on_left(small: PreTrainedModel, rows: list[Tensor], told: bool) -> list[Tensor]:
    return _padded(small, rows, told, on_left=True)


def _padded(small: PreTrainedModel, rows: list[Tensor], told: bool, on_left: bool) -> list[Tensor]:
    """told: whether positions are given; the bare model needs them, and with a context the mask is enough."""
    most = max(map(len, rows))
    columns = [slice(most - len(one), None) if on_left else slice(len(one)) for one in rows]
    ids = torch.zeros(len(rows), most, dtype=torch.long)
    mask = ids.clone()
    for row, (one, at) in enumerate(zip(rows, columns, strict=True)):
        ids[row, at], mask[row, at] = one, 1
    positions = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if told else {}
    states = _states(small, input_ids=ids, attention_mask=mask, **positions)
    return [states[row, at] for row, at in enumerate(columns)]


def _in_two(small: PreTrainedModel, rows: list[Tensor], _told: bool) -> list[Tensor]:
    found = []
    for one in rows:
        first = small.base_model(input_ids=one[None, :_CUT], use_cache=True)
        rest = small.base_model(input_ids=one[None, _CUT:], past_key_values=first.past_key_values, use_cache=True)
        found.append(torch.cat([first[0][0], rest[0][0]]))
    return found


_WAYS = {
    "a text longer than the windows of its layers differs": _each,
    "a row padded on the right differs from the row alone": _on_right,
    "a row padded on the left differs from the row alone": _on_left,
    "a text that is read in two calls differs": _in_two,
}
