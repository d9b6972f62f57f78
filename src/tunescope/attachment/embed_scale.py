"""What an encoder makes of the embeddings of ids before its first layer, and not of embeddings that it is given.

Marian, Pegasus and others multiply them by the root of the width, as Vaswani et al. 2017 (section 3.4) do, where they
look ids up; embeddings from outside have to come with it. Which it is is not asked of a list of families but tried.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.trial_inputs import takes_tokens, tried
from tunescope.attachment.whole import called, through
from tunescope.errors import UserError
from tunescope.models.anatomy import Anatomy, anatomy, argument_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TOKENS, _TRIES = 3, 4
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, less whole numbers, lie far apart
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5}  # of the largest state: the sums are the same ones
_HALF = 0.01

_FOUND: weakref.WeakKeyDictionary[Anatomy, tuple[float, bool]] = weakref.WeakKeyDictionary()


def embed_scale(model: PreTrainedModel) -> float:
    """The factor from rows of the embedding table to what stands before the first layer; 1.0 where it is none."""
    entry = anatomy(model).entries["decoder" if anatomy(model).kind == "decoder" else "encoder"]
    said = getattr(entry, "embed_scale", None)
    return 1.0 if not isinstance(said, int | float) or said == 1 else _measured(model)[0]


def is_embeddings_alone(model: PreTrainedModel) -> bool:
    """Whether ids are their embeddings, but for the factor: an encoder may make more of them (ESM does)."""
    return _measured(model)[1]


def _measured(model: PreTrainedModel) -> tuple[float, bool]:
    about = anatomy(model)
    if about.kind == "decoder" or about.device.type == "meta" or not _takes_both(model):
        return 1.0, True
    if about not in _FOUND:
        said = float(getattr(about.entries["encoder"], "embed_scale", None) or 1.0)
        try:
            with tried(model, "run on ids and on their embeddings"), resting(model), torch.no_grad():
                found = {factor: _distance(model, factor) for factor in dict.fromkeys((1.0, said))}
        except UserError:  # a stack that does not run by itself, as FSMT's: what is attached is tried elsewhere
            found = {1.0: 0.0}
        best = min(found, key=lambda factor: found[factor])
        _FOUND[about] = best, found[best] <= _ROUNDING.get(about.table.weight.dtype, _HALF)
    return _FOUND[about]


def _takes_both(model: PreTrainedModel) -> bool:
    return takes_tokens(model) and "inputs_embeds" in argument_names(anatomy(model).entries["encoder"])


def _distance(model: PreTrainedModel, factor: float) -> float:
    """How far, as a share of the largest state, ids and their embeddings come out apart; in the closest of the tries.

    One of them may have a padding token, or another that a family treats as more than its embedding.
    """
    table = anatomy(model).table
    every = torch.arange(1, 1 + _TRIES * _TOKENS, dtype=torch.float64) * _GOLDEN % 1 * len(table.weight)
    apart = []
    for ids in every.long().to(anatomy(model).device).view(_TRIES, 1, _TOKENS):
        wanted = _states(model, input_ids=ids)
        found = _states(model, inputs_embeds=called(table, ids) * factor)
        apart.append(float((found - wanted).abs().max() / wanted.abs().max()))
    return min(apart)


def _states(model: PreTrainedModel, **given: Tensor) -> Tensor:
    """Past all hooks of the encoder itself: what stands in front of a text elsewhere has no part in it."""
    states: Tensor = through(model, partial(anatomy(model).entries["encoder"].forward, **given))[0]
    return states
