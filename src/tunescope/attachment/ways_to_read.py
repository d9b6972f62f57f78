"""Ways to read rows of tokens that all come to the same: alone, padded on either side, in two calls.

Each gives the last states of every row, (tokens, width), of an encoder-decoder those of a fixed target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.embed_scale import embed_scale
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import first_position

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CUT = 5  # of a row, the tokens of the first of two calls
_TARGET = (3, 5)  # tokens

Way = Callable[["PreTrainedModel", list[Tensor], bool], list[Tensor]]


def states(model: PreTrainedModel, **given: Tensor) -> Tensor:
    """(rows, tokens, width), of rows of ids or embeddings."""
    if anatomy(model).kind == "encoder-decoder":
        rows = len(next(iter(given.values())))
        given["decoder_input_ids"] = torch.tensor(_TARGET).expand(rows, -1)
    found: Tensor = model.base_model(**given, **_without_cache(model))[0]
    return found


def joined(model: PreTrainedModel, front: Tensor, row: Tensor) -> Tensor:
    """The states of a row of ids with embeddings in the row before it, those of the row alone."""
    text = anatomy(model).table(row) * embed_scale(model)
    found = states(model, inputs_embeds=torch.cat([front, text])[None])[0]
    return found if anatomy(model).kind == "encoder-decoder" else found[len(front) :]


def each(model: PreTrainedModel, rows: list[Tensor], _told: bool) -> list[Tensor]:
    return [states(model, input_ids=one[None])[0] for one in rows]


def ways(model: PreTrainedModel) -> dict[str, Way]:
    """By what would be wrong if one came out otherwise."""
    found: dict[str, Way] = {
        "a text longer than the windows of its layers differs": each,
        "a row padded on the right differs from the row alone": _on_right,
        "a row padded on the left differs from the row alone": _on_left,
    }
    return found | ({"a text that is read in two calls differs": _in_two} if anatomy(model).kind == "decoder" else {})


def _on_right(model: PreTrainedModel, rows: list[Tensor], told: bool) -> list[Tensor]:
    return _padded(model, rows, told, on_left=False)


def _on_left(model: PreTrainedModel, rows: list[Tensor], told: bool) -> list[Tensor]:
    return _padded(model, rows, told, on_left=True)


def _padded(model: PreTrainedModel, rows: list[Tensor], told: bool, on_left: bool) -> list[Tensor]:
    """told: whether positions are given; the bare model needs them, and with a context the mask is enough."""
    most = max(map(len, rows))
    columns = [slice(most - len(one), None) if on_left else slice(len(one)) for one in rows]
    ids = torch.zeros(len(rows), most, dtype=torch.long)
    mask = ids.clone()
    for row, (one, at) in enumerate(zip(rows, columns, strict=True)):
        ids[row, at], mask[row, at] = one, 1
    positions = {"position_ids": _counted(model, mask)} if told and _takes_positions(model) else {}
    found = states(model, input_ids=ids, attention_mask=mask, **positions)
    if anatomy(model).kind == "encoder-decoder":
        return list(found)
    return [found[row, at] for row, at in enumerate(columns)]


def _counted(model: PreTrainedModel, mask: Tensor) -> Tensor:
    return (mask.cumsum(1) - 1).clamp(min=0) + first_position(model)


def _takes_positions(model: PreTrainedModel) -> bool:
    kind = anatomy(model).kind
    return kind == "decoder" or (kind == "encoder" and "position_ids" in argument_names(model.base_model))


def _without_cache(model: PreTrainedModel) -> dict[str, bool]:
    return {} if anatomy(model).kind == "encoder" else {"use_cache": False}


def _in_two(model: PreTrainedModel, rows: list[Tensor], _told: bool) -> list[Tensor]:
    found = []
    for one in rows:
        first = model.base_model(input_ids=one[None, :CUT], use_cache=True)
        rest = model.base_model(input_ids=one[None, CUT:], past_key_values=first.past_key_values, use_cache=True)
        found.append(torch.cat([first[0][0], rest[0][0]]))
    return found
