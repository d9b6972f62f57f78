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


RESCALED = ("dynamic", "longrope")  # rotary positions whose frequencies hang on the length of the text


def is_rotary(model: PreTrainedModel) -> bool:
    """Whether positions are rotary and no length of the text rescales them: only their differences count then."""
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None:
        return getattr(model.config, "rotary_dim", None) is not None  # GPT-J and CodeGen turn within each layer
    return not has_alibi(model) and getattr(rotary, "rope_type", "default") not in RESCALED


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
    text = given.get("inputs_embeds") if given.get("input_ids") is None else given["input_ids"]
    assert text is not None
    seen = seen_by(given)
    positions = given.get("position_ids")
    first = first_position(model) if anatomy(model).kind == "encoder" else 0
    if positions is None:
        positions = text_positions(given.get("attention_mask"), seen, text.shape[1], text.device) + first
    most = used if isinstance(used, int) else int(used.max())
    positions = positions + (used if isinstance(used, int) else used.to(positions.device)[:, None])
    limit = _most_positions(model)
    if limit is not None and seen + text.shape[1] + most > limit:
        if int(positions.max()) >= limit + first:
            raise UserError(_too_long(model, seen + text.shape[1], most, limit, "or cut the context"))
    elif limit is not None and given.get("position_ids") is not None and _is_free_to_read(positions):
        _check_given(model, positions, most, limit + first)
    return {**given, "position_ids": positions}


def text_positions(mask: Tensor | None, seen: int, length: int, device: torch.device) -> Tensor:
    """(batch or 1, length): 0, 1, 2, ... over real tokens, whichever side is padded."""
    if mask is None or mask.dim() != 2:
        return torch.arange(seen, seen + length, device=device)[None]
    return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]


def first_position(model: PreTrainedModel) -> int:
    """RoBERTa and its kin count positions from after the padding index."""
    padding = getattr(getattr(model.base_model, "embeddings", None), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


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


def _most_positions(model: PreTrainedModel) -> int | None:
    limit = getattr(model.config, "max_position_embeddings", None)
    return None if limit is None else int(limit) - (first_position(model) if anatomy(model).kind != "decoder" else 0)


def _too_long(model: PreTrainedModel, n_tokens: int, used: int, limit: int, end: str) -> str:
    return (
        f"The text has {n_tokens} tokens and the context in front of it {used}: together more than the {limit} "
        f"positions of {model.config.model_type!r}. Shorten the text to {limit - used} tokens, {end}."
    )
