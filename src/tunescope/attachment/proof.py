"""Whether what stands in front of a text is what it should be: proved on a small twin of the model.

By rows longer than every window, padded on either side, and read in two calls, against the rows alone; words in front
against the same words in the row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.attention.twin import VOCABULARY, twin, twin_config
from tunescope.attachment.contexts import placed
from tunescope.attachment.ways_to_read import Way, each, joined, ways
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Params
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.soft import Soft
from tunescope.models.anatomy import anatomy
from tunescope.models.split import plain_type

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LENGTHS = (11, 7)  # of the rows
_UNKNOWN = "its attention gets something that tunescope does not know, and a text comes out otherwise"
_NOT_FINITE = "a small random one of its kind gives numbers that are not finite"
_ALLOWED = 1e-4  # of the largest state: norms and softmax are in float32 even there


@dataclass(frozen=True)
class Differences:
    """What is otherwise than it should be with words in front, and with free keys and values; None for nothing.

    untried_words, untried_free: why nothing is known of either; None where it was tried.
    """

    of_words: str | None = None
    of_free: str | None = None
    untried_words: str | None = None
    untried_free: str | None = None


_KNOWN: dict[tuple[type, str], Differences] = {}


def differences(model: PreTrainedModel) -> Differences:
    """For a person to read, also why no twin can be tried. Found out once for a class and what its layers are."""
    key: tuple[type, str] | None = None
    try:
        told = twin_config(model.config)
        if told is None:
            return _untried("its configuration does not say how to make a small one of its kind")
        key = (plain_type(model), json.dumps(told, sort_keys=True, default=str))
        if key not in _KNOWN:
            with torch.device("cpu"), torch.autocast("cpu", enabled=False):
                _KNOWN[key] = tried(twin(model, told))
    except Exception as problem:  # the twin is ours: what it cannot do says nothing of the model
        found = _untried(f"a small random one of its kind cannot be made or run ({_shown(problem)})")
        if key is not None:
            _KNOWN[key] = found
        return found
    return _KNOWN[key]


@torch.no_grad()
def tried(small: PreTrainedModel) -> Differences:
    """What differs on this model, tried out in every way in which it is right with nothing in front."""
    draw = torch.Generator().manual_seed(0)
    rows = _rows(draw)
    alone = each(small, rows, True)
    if not _are_finite(alone):  # random weights can be too much for a family
        return _untried(_NOT_FINITE)
    if not _is_switched_alike(small, rows, alone):
        return Differences(_UNKNOWN, _UNKNOWN)
    right = right_ways(small, rows, alone)
    try:
        of_words, untried = _with_words(small, right, rows, draw), None
    except FloatingPointError:
        of_words, untried = None, _NOT_FINITE
    return Differences(of_words, _with_free(small, right, rows, draw), untried)


def _with_words(small: PreTrainedModel, right: dict[str, Way], rows: list[Tensor], draw: torch.Generator) -> str | None:
    """FloatingPointError where the words in the row give no finite numbers."""
    table = anatomy(small).table
    front = table(torch.randint(3, VOCABULARY, (3,), generator=draw)).flip(-1).clone()  # no token's
    try:
        whole = [joined(small, front, one) for one in rows]
    except Exception as problem:
        return _failing(problem)
    if not _are_finite(whole):
        raise FloatingPointError
    before = [value._version for value in (front, *small.parameters())]
    with placed(small, [Artifact(Soft(length=len(front)), {"embeddings": front})]):
        why = _first_wrong(small, right, rows, whole)
    if why is None and before != [value._version for value in (front, *small.parameters())]:
        return "the embeddings are written into"
    return why


def _with_free(small: PreTrainedModel, right: dict[str, Way], rows: list[Tensor], draw: torch.Generator) -> str | None:
    with placed(small, [Artifact(Prefix(length=2, positions="same"), _drawn(small, draw))]):
        try:
            whole = each(small, rows, False)
        except UserError:
            return None
        return _first_wrong(small, right, rows, whole)


def _rows(draw: torch.Generator) -> list[Tensor]:
    ids = torch.randint(3, VOCABULARY, (len(_LENGTHS), max(_LENGTHS)), generator=draw)
    return [ids[row, :length] for row, length in enumerate(_LENGTHS)]


def _drawn(small: PreTrainedModel, draw: torch.Generator) -> Params:
    tensors = {}
    for place in reached(small):
        heads, key, value = place.shape
        for kind, width in (("key", key), ("value", value)):
            tensors[f"{place.name}.{kind}"] = torch.randn(heads, 2, width, generator=draw, dtype=torch.float64)
    return tensors


def right_ways(small: PreTrainedModel, rows: list[Tensor], alone: list[Tensor]) -> dict[str, Way]:
    """The ways in which the bare model does what it should: of the others a context is not to blame."""
    found = {}
    for name, way in ways(small).items():
        try:
            with switched(small):  # the family's own eager attention makes NaN of padding in float64
                if _is_as(way(small, rows, True), alone):
                    found[name] = way
        except Exception:
            continue
    return found


def _first_wrong(small: PreTrainedModel, tried: dict[str, Way], rows: list[Tensor], whole: list[Tensor]) -> str | None:
    for name, way in tried.items():
        try:
            if not _is_as(way(small, rows, False), whole):
                return name
        except UserError:  # refused when it is called, by name
            continue
        except Exception as problem:
            return _failing(problem)
    return None


def _is_switched_alike(small: PreTrainedModel, rows: list[Tensor], alone: list[Tensor]) -> bool:
    with switched(small):
        return _is_as(each(small, rows, True), alone)


def _untried(why: str) -> Differences:
    return Differences(untried_words=why, untried_free=why)


def _failing(problem: Exception) -> str:
    return f"its own code fails ({_shown(problem)})"


def _shown(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"


def _are_finite(states: list[Tensor]) -> bool:
    return all(bool(one.isfinite().all()) for one in states)


def _is_as(got: list[Tensor], expected: list[Tensor]) -> bool:
    return all(
        bool((one - other).abs().max() <= _ALLOWED * other.abs().max())
        for one, other in zip(got, expected, strict=True)
    )
