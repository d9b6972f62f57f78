"""Positions of the text, further on by what stands in front of it, and how many of them a model has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


HIDDEN = -1e4  # what a mask adds to scores that are not to count
RESCALED = ("dynamic", "longrope")  # rotary positions whose frequencies hang on the length of the text


def is_rotary(model: PreTrainedModel) -> bool:
    """Whether positions are rotary and no length of the text rescales them: only their differences count then."""
    about = anatomy(model)
    entry = about.entries["decoder"] if about.kind == "decoder" else model.base_model  # it may lie beside a tower
    rotary = getattr(entry, "rotary_emb", None)
    if rotary is None:
        return getattr(model.config, "rotary_dim", None) is not None  # GPT-J and CodeGen turn within each layer
    told = getattr(rotary, "rope_type", "default")
    kinds = told.values() if isinstance(told, Mapping) else [told]  # by type of layer
    return not has_alibi(model) and not any(one in RESCALED for one in kinds)


def has_alibi(model: PreTrainedModel) -> bool:
    """Whether scores have a bias by distance (ALiBi, Press et al. 2022) in place of positions."""
    return model.config.model_type == "bloom" or bool(getattr(model.config, "alibi", False))


def seen_by(given: Mapping[str, Any]) -> int:
    """How many columns of the text lie in the cache."""
    past = given.get("past_key_values")
    return int(past.get_seq_length()) if past is not None else 0


def shifted(given: dict[str, Any], used: int | Tensor, model: PreTrainedModel, takes: Sequence[str]) -> dict[str, Any]:
    """The text's positions, `used` further on; derived from the mask where none are given, so padding is no text.

    used: one number for all rows, or (batch,).
    """
    if "position_ids" not in takes:
        raise UserError(f"Family {model.config.model_type!r} takes no positions: use Prefix(positions='same').")
    text = text_of(given)
    assert text is not None
    if text.dim() > (3 if text.is_floating_point() else 2):
        raise UserError("Of several choices to a row each goes as a row of its own: a context has its place in a text.")
    seen = seen_by(given)
    positions = given.get("position_ids")
    first, mask = first_position(model), told_mask(given, seen + text.shape[1])
    if positions is None:
        positions = text_positions(mask, seen, text.shape[1], text.device) + first
    elif first and anatomy(model).kind == "decoder" and not seen:
        _check_first(model, positions, mask, first)
    most = used if isinstance(used, int) else int(used.max())
    positions = positions + (used if isinstance(used, int) else used.to(positions.device)[:, None])
    if seen and most:
        _check_crossing(model, positions)
    limit = _most_positions(model)
    if limit is not None and seen + text.shape[1] + most > limit:
        if int(positions.max()) >= limit + first:
            raise UserError(_too_long(model, seen + text.shape[1], most, limit, "or cut the context"))
    elif limit is not None and given.get("position_ids") is not None and _is_free_to_read(positions):
        _check_given(model, positions, most, limit + first)
    return {**given, "position_ids": positions}


def counted_by_mask(
    given: dict[str, Any], model: PreTrainedModel, takes: Sequence[str], rows: Sequence[bool] | None = None
) -> dict[str, Any]:
    """The call with the positions of real tokens alone, where it has a mask and none, and the family takes them.

    Left-padded rows are then what they are alone.

    rows: those that have a context; in an encoder the others keep the positions that the bare model gives them.
    """
    text = text_of(given)
    if "position_ids" not in takes or given.get("position_ids") is not None or text is None:
        return given
    mask = told_mask(given, seen_by(given) + text.shape[1])
    if mask is None or mask.dim() != 2 or mask.shape[1] < text.shape[1]:
        return given
    positions, first = text_positions(mask, 0, text.shape[1], text.device), first_position(model)
    if first and not text.is_floating_point() and anatomy(model).kind == "encoder":
        return {**given, "position_ids": from_first((text != first - 1) * mask[:, -text.shape[1] :].long(), first)}
    if rows is not None and anatomy(model).kind == "encoder":
        columns = torch.arange(text.shape[1], device=text.device)
        positions = torch.where(torch.tensor(rows, device=text.device)[:, None], positions, columns)
    return {**given, "position_ids": positions + first}


def recounted(given: dict[str, Any], mask: Tensor) -> dict[str, Any]:
    """The call with positions that count every column, from any number on, counting real tokens alone from there.

    Positions of more than one row, and such as count otherwise, stay as they are. mask: (batch, columns so far).
    """
    text, positions, seen = text_of(given), given.get("position_ids"), seen_by(given)
    if text is None or positions is None or positions.dim() != 2 or len(positions) > 1:
        return given
    if mask.dim() != 2 or mask.shape[1] < text.shape[1]:
        return given
    first, mask = positions[:, :1] - seen, mask[:, : seen + text.shape[1]]
    counts_columns = (positions.diff(dim=-1) == 1).all() & (first >= 0)  # not read: a device would be waited for
    by_mask = text_positions(mask, seen, text.shape[1], mask.device).to(positions.device) + first
    return {**given, "position_ids": torch.where(counts_columns, by_mask, positions)}


def told_mask(given: Mapping[str, Any], n_columns: int) -> Tensor | None:
    """The mask of a call, (batch, n_columns) where it says which tokens are real.

    One of a static cache's whole length has columns that are still to come: transformers reads none of these.
    A model of text and pictures hands its decoder masks that are made, one a type of layer: the last query of the whole
    one sees what is real.
    """
    mask = given.get("attention_mask")
    if isinstance(mask, Tensor):
        return mask[:, :n_columns] if mask.dim() == 2 else mask
    if not isinstance(mask, Mapping):
        return None
    whole = mask.get("full_attention")
    if whole is None:
        return None
    return seen_by_last(whole, n_columns)


def seen_by_last(mask: Tensor, n_columns: int) -> Tensor:
    """(batch, n_columns), what the last query of a mask for pairs of tokens sees: of padding too, what is real."""
    seen = mask[:, 0, -1, :n_columns]
    return seen if seen.dtype == torch.bool else seen > HIDDEN


def text_of(given: Mapping[str, Any]) -> Tensor | None:
    """The ids of a call of a stack, or its embeddings; None for what is no text."""
    found: Tensor | None = given.get("inputs_embeds") if given.get("input_ids") is None else given["input_ids"]
    return found


def check_chunk(model: PreTrainedModel, n_tokens: int) -> None:
    """UserError where text and a context at positions reach past the part that a layer sees as a whole.

    Chunks of such a layer are of columns of the text, which is given without the context, and so is the scale by which
    some of them sharpen attention.
    """
    config = model.config.get_text_config()
    limits = []
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        limits.append(int(config.attention_chunk_size))
        if getattr(config, "attn_temperature_tuning", False):
            limits.append(int(config.floor_scale) - 1)
    if limits and n_tokens > min(limits):
        raise UserError(
            f"Family {model.config.model_type!r} attends in chunks, and text and context together have {n_tokens} "
            f"tokens, more than the {min(limits)} up to which a context is seen as in the row. Shorten them, use a "
            "prefix, or put the words into the input."
        )


def check_rescaled(model: PreTrainedModel, n_tokens: int, positions: Tensor | None) -> None:
    """UserError where a text is so long that its rotary positions are rescaled, and those of what is in front are not.

    n_tokens: of both, padding among them; positions: (batch, columns) of the text, where they are known.
    """
    limit = _rescaled_from(model)
    if limit is None or n_tokens <= limit:
        return
    if positions is not None and (n_tokens := int(positions.max()) + 1) <= limit:
        return
    raise UserError(
        f"{type(model).__name__} turns its positions otherwise from {limit + 1:,} tokens on, and the keys of the "
        f"context in front were made as below that; context and text have {n_tokens:,} now. Shorten them, use a "
        "prefix, or put the words into the input."
    )


def _check_crossing(model: PreTrainedModel, positions: Tensor) -> None:
    """UserError where positions, moved by a context, are the first that are rescaled behind a cache of others."""
    limit = _rescaled_from(model)
    if limit is not None and int(positions[:, 0].max()) <= limit <= int(positions.max()):
        raise UserError(
            f"{type(model).__name__} turns its positions otherwise from {limit + 1:,} tokens on, and the cache holds "
            "keys as below that: the context in front moves the text past it, of which the family knows nothing. "
            "Shorten them, call it without a cache (use_cache=False), or use Prefix(positions='same')."
        )


def _rescaled_from(model: PreTrainedModel) -> int | None:
    """The most tokens of which positions are as in a short text; None where there is no such length."""
    config = model.config.get_text_config()
    told = getattr(config, "rope_parameters", None) or {}
    kinds = [told] if "rope_type" in told else [one for one in told.values() if isinstance(one, Mapping)]
    known = {"longrope": "original_max_position_embeddings"}
    limits = [
        int(one.get(known.get(one["rope_type"], "")) or config.max_position_embeddings)
        for one in kinds
        if one.get("rope_type") in RESCALED and one.get("short_factor", 0) != one.get("long_factor")
    ]
    return min(limits, default=None)


def text_positions(mask: Tensor | None, seen: int, length: int, device: torch.device) -> Tensor:
    """(batch or 1, length): 0, 1, 2, ... over real tokens, whichever side is padded."""
    if mask is None or mask.dim() != 2:
        return torch.arange(seen, seen + length, device=device)[None]
    return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]


def first_position(model: PreTrainedModel) -> int:
    """RoBERTa and its kin count positions from after the padding index; 0 elsewhere, as in an ESM with rotary ones."""
    embeddings = getattr(model.base_model, "embeddings", None)
    padding = getattr(embeddings, "padding_idx", None) if hasattr(embeddings, "position_embeddings") else None
    return 0 if padding is None else int(padding) + 1


def from_first(real: Tensor, first: int) -> Tensor:
    """Positions as RoBERTa counts them: what is real from `first` on, all else in its padding's, one before.

    real: (batch, columns), 1 or 0; in the bare model that is 1 for every id but the padding's.
    """
    return real.cumsum(1) * real + first - 1


def check_room(model: PreTrainedModel, n_tokens: int, used: int) -> None:
    """UserError where text and context together are longer than the model has positions."""
    limit = _most_positions(model)
    if limit is not None and n_tokens + used > limit:
        raise UserError(_too_long(model, n_tokens, used, limit, "or the context"))


def _is_free_to_read(positions: Tensor) -> bool:
    """A device would have to be waited for, at every step, and a compiled model has no numbers to look at."""
    return positions.device.type == "cpu" and not torch.compiler.is_compiling()


def _check_given(model: PreTrainedModel, positions: Tensor, used: int, end: int) -> None:
    """UserError where positions that the caller gave, though the text is short, lie past the model's last."""
    if int(positions.max()) >= end:
        raise UserError(
            f"The position_ids given, {used} further on by the context in front, reach {int(positions.max())}, and the "
            f"last position of {model.config.model_type!r} is {end - 1}. Give lower ones, or cut the context."
        )


def _check_first(model: PreTrainedModel, positions: Tensor, mask: Tensor | None, first: int) -> None:
    """UserError where positions that the caller gave, or `generate`, count from 0, and the model from `first`."""
    real = torch.ones_like(positions) if mask is None or mask.dim() != 2 else mask.to(positions.device)
    real = real[:, -positions.shape[-1] :].expand(len(real), -1)
    if not torch.compiler.is_compiling() and bool((real.bool() & (positions < first)).any()):
        raise UserError(
            f"The position_ids given begin before {first}, from where {model.config.model_type!r} counts the real "
            "tokens of a row, as do those that generate() makes: the context in front would stand elsewhere. Give "
            f"position_ids=(attention_mask.cumsum(1) - 1).clamp(min=0) + {first}; generate() takes them too."
        )


def _most_positions(model: PreTrainedModel) -> int | None:
    limit = getattr(model.config, "max_position_embeddings", None)
    return None if limit is None else int(limit) - first_position(model)


def _too_long(model: PreTrainedModel, n_tokens: int, used: int, limit: int, end: str) -> str:
    return (
        f"The text has {n_tokens} tokens and the context in front of it {used}: together more than the {limit} "
        f"positions of {model.config.model_type!r}. Shorten the text to {limit - used} tokens, {end}."
    )
