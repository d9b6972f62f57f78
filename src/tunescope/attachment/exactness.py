"""Whether text in front of a decoder can be had as its keys and values alone: tried, once a model, and on its twin.

Layers that carry the past by other means (state space, convolution, linear attention) never see such a context, and
masks that are made of the text's values know nothing of its own.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.context import Extra
from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.attention.reach import reached, resting, switched
from tunescope.attachment.attention.trial_inputs import takes_tokens, tried
from tunescope.attachment.context_keys import embedder, run_tokens
from tunescope.attachment.embed_scale import is_embeddings_alone
from tunescope.attachment.proof import differences
from tunescope.attachment.whole import through
from tunescope.errors import Note, UserError
from tunescope.methods.artifact import Context, TokenContext
from tunescope.methods.contexts.prefix import WORDS
from tunescope.models.anatomy import Anatomy, anatomy, argument_names
from tunescope.models.positions import first_position
from tunescope.models.split import plain_type

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FRONT, _TEXT = 2, 3  # tokens
_TRIES = 4  # of other tokens each: behind some that were never trained, rounding of half precision is all there is
_GOLDEN = (5**0.5 - 1) / 2  # its multiples, less whole numbers, lie far apart
# of the largest state: more than another order of the same sums makes, some fifty times what was seen in 24 layers
_ROUNDING = {torch.float64: 3e-5, torch.float32: 3e-5}
_HALF = 0.05
_UNSEEN = "some layers do not see it there (state space, convolution, linear attention, masks made of the values)"

_MORE = "it makes more of a token's id than its embedding"
_BOTH_WAYS = "tokens of the input look at those behind them too, so what stands in front hangs on the text"

_WHY_NOT: weakref.WeakKeyDictionary[Anatomy, str | None] = weakref.WeakKeyDictionary()
_NOT_FREE: weakref.WeakKeyDictionary[Anatomy, str | None] = weakref.WeakKeyDictionary()
_TOLD: set[tuple[type, str | None]] = set()


def check_seen(model: PreTrainedModel, context: Context) -> None:
    """UserError for a context where not all that it is in the row, or before every layer, would be seen.

    Warns of a `Note` where that rests on a twin and none could be tried: once a class of model and reason in a process.
    """
    now = anatomy(model)
    if not isinstance(context, TokenContext):
        _check_stacks(model, context)
        _check_free(model, context)
        return
    _check_takes_embeddings(model, context)
    if now.device.type == "meta":
        return
    reached(model)  # who cannot have any says so
    if now not in _WHY_NOT:
        _WHY_NOT[now] = _why_not(model)
        if _WHY_NOT[now] is None:
            _tell_untried(model, context, differences(model).untried_words)
    if (why := _WHY_NOT[now]) is not None:
        raise UserError(
            f"{context}: in family {model.config.model_type!r} text put in front is not what it is in the row: "
            f"{why}. Use a prefix or an infix, or put the words into the input."
        )


def _why_not(model: PreTrainedModel) -> str | None:
    """Why text in front is not what it is in the row; None where it is."""
    if anatomy(model).kind == "decoder":
        if getattr(model.config.get_text_config(), "use_bidirectional_attention", None) in (True, "all"):
            return _BOTH_WAYS
        if not _is_exact(model):
            return _UNSEEN
    elif not is_embeddings_alone(model):
        return _MORE
    return differences(model).of_words


def _check_free(model: PreTrainedModel, context: Context) -> None:
    """UserError for keys and values before the text with which a padded row is not what it is alone."""
    now = anatomy(model)
    if now.device.type == "meta" or not takes_tokens(model):
        return
    reached(model)  # who cannot have any says so
    if now not in _NOT_FREE:
        found = differences(model)
        _NOT_FREE[now] = found.of_free
        _tell_untried(model, context, found.untried_free)
    if (why := _NOT_FREE[now]) is not None:
        raise UserError(
            f"{context}: in family {model.config.model_type!r} keys and values before the text do not come out right: "
            f"{why}. Use LoRA, an adapter, or put the words into the input."
        )


def _tell_untried(model: PreTrainedModel, context: Context, why: str | None) -> None:
    about = (plain_type(model), why)
    if why is not None and about not in _TOLD:
        _TOLD.add(about)
        said = (
            f"{context}: whether it is right in family {model.config.model_type!r} with padding, windows and texts "
            f"read in several calls was not tried: {why}. Compare a padded row with the row alone before relying on it."
        )
        warnings.warn(Note(said), stacklevel=2)


def _check_stacks(model: PreTrainedModel, context: Context) -> None:
    """UserError for keys and values before an encoder of which some layers compute attention by themselves."""
    family, now = model.config.model_type, anatomy(model)
    if not takes_tokens(model) and getattr(context, "init_from", None) in WORDS:
        raise UserError(
            f"{context}: family {family!r} takes {model.base_model.main_input_name!r} and no tokens, so a prefix there "
            "begins as no words: use init_from='noise' or 'zero'."
        )
    if now.kind == "decoder" or getattr(context, "infix", False):
        return
    found = {place.module for place in reached(model)}
    lists = [one for one in now.entries["encoder"].modules() if isinstance(one, nn.ModuleList)]
    layers = next((one for one in lists if not found.isdisjoint(one.modules())), lists[0] if lists else ())
    alone = [index for index, layer in enumerate(layers) if found.isdisjoint(layer.modules())]
    if alone:
        raise UserError(
            f"{context}: {len(alone)} of {len(layers)} encoder layers of family {family!r} compute attention by "
            "themselves, so no keys and values can stand before them. Use text or soft."
        )


def _check_takes_embeddings(model: PreTrainedModel, context: Context) -> None:
    """UserError where embeddings have no way in."""
    stack = "decoder" if anatomy(model).kind == "decoder" else "encoder"
    names = argument_names(anatomy(model).entries[stack])
    if takes_tokens(model) and anatomy(model).table is None:
        raise UserError(
            f"{context}: family {model.config.model_type!r} has no table of its tokens' embeddings, so text and soft "
            "cannot stand among them. Use lora, an adapter or full."
        )
    if not takes_tokens(model) or "inputs_embeds" not in names:
        what = str(model.base_model.main_input_name) if not takes_tokens(model) else "input_ids alone"
        raise UserError(
            f"{context}: the {stack} of family {model.config.model_type!r} takes {what}, and no embeddings, so text "
            "and soft cannot stand in front. Use a prefix."
        )


def _is_exact(model: PreTrainedModel) -> bool:
    """Whether the states behind two tokens are the same with those tokens in the text and as keys and values.

    Once is enough: a layer that does not see them makes them others whichever tokens they are.
    """
    now = anatomy(model)
    every = torch.arange(1, 1 + _TRIES * (_FRONT + _TEXT), dtype=torch.float64) * _GOLDEN % 1 * len(now.table.weight)
    return any(_is_as_in_the_row(model, ids) for ids in every.long().to(now.device).chunk(_TRIES))


def _is_as_in_the_row(model: PreTrainedModel, ids: Tensor) -> bool:
    places = {found.name: found.module for found in reached(model)}
    before = {name: module.__dict__.get(STATE) for name, module in places.items()}
    try:
        what = "run on embeddings in front of a text, and on their keys and values"
        with tried(model, what), switched(model), resting(model), torch.no_grad():
            whole = _states(model, ids, 0, places, {})[_FRONT:]
            none: dict[str, tuple[Extra, ...]] = dict.fromkeys(places, ())
            made = run_tokens(model, embedder(model)(ids[:_FRONT]), 0, none, places)
            at = torch.arange(_FRONT, device=ids.device)
            front = {name: (Extra(key, value, at),) for name, (key, value) in made.items()}
            behind = _states(model, ids[_FRONT:], _FRONT, places, front)
    finally:
        for name, module in places.items():
            module.__dict__.pop(STATE, None)
            if before[name] is not None:
                module.__dict__[STATE] = before[name]
    allowed = _ROUNDING.get(whole.dtype, _HALF) * whole.abs().max()
    return bool((behind - whole).abs().max() <= allowed)


def _states(
    model: PreTrainedModel,
    ids: Tensor,
    start: int,
    places: dict[str, nn.Module],
    extras: Mapping[str, tuple[Extra, ...]],
) -> Tensor:
    """(tokens, width) of one row that stands at `start`, past all hooks of the decoder itself."""
    for name, module in places.items():
        module.__dict__[STATE] = LayerState(extras.get(name, ()))
    positions = torch.arange(start, start + len(ids), device=ids.device)[None] + first_position(model)
    decoder = anatomy(model).entries["decoder"]
    call = partial(decoder.forward, input_ids=ids[None], position_ids=positions, use_cache=False)
    out = through(model, call)
    states: Tensor = out[0][0]
    return states
