"""Embeddings in front of an encoder's text: a context there runs as tokens, for its keys look at the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.site_hooks import refuse_tuple
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import check_room, first_position, text_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Made = tuple[Tensor, Tensor | None]


@contextmanager
def embeddings_joined(model: PreTrainedModel, made: Callable[[], Made | None]) -> Iterator[None]:
    """In an encoder a token context runs as tokens, for its keys look at the text.

    An encoder alone gives states of the text's length, context cut off; in an encoder-decoder the decoder attends to
    the context's states too, as in prompt tuning (Lester et al. 2021).

    made: before each pass, the embeddings to put in front, (1, n, width) or (batch, n, width), and where each row has
    one, (batch, n), or None for everywhere; None for nothing to put there.
    """
    is_alone = anatomy(model).kind == "encoder"
    entry = anatomy(model).entries["encoder"]
    names = argument_names(entry)
    now: dict[str, Any] = {"length": 0, "filled": None}

    def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        given, found = dict(zip(names, args, strict=False)) | kwargs, made()
        now["length"], now["filled"] = (0, None) if found is None else (found[0].shape[1], found[1])
        return (), (given if found is None else _joined(given, *found, model, takes=names))

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        refuse_tuple(output)
        output["last_hidden_state"] = output.last_hidden_state[:, now["length"] :]
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(states[:, now["length"] :] for states in output.hidden_states)
        return output

    def pool(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][:, now["length"] :], *args[1:])

    def cross(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask, states = kwargs.get("encoder_attention_mask"), kwargs.get("encoder_hidden_states")
        if mask is None and states is not None and now["filled"] is not None:
            mask = states.new_ones(len(states), states.shape[1] - now["length"], dtype=torch.long)
        if mask is not None and states is not None and mask.shape[1] < states.shape[1]:
            kwargs["encoder_attention_mask"] = widened(mask, states.shape[1] - mask.shape[1], now["filled"])
        return args, kwargs

    handles = [entry.register_forward_pre_hook(uncompiled(enter), with_kwargs=True)]
    if is_alone:
        handles.append(entry.register_forward_hook(leave))
        if isinstance(getattr(entry, "pooler", None), nn.Module):
            handles.append(entry.pooler.register_forward_pre_hook(pool))
    else:
        handles.append(anatomy(model).entries["decoder"].register_forward_pre_hook(cross, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def widened(mask: Tensor, by: int, filled: Tensor | None = None) -> Tensor:
    """A (batch, length) mask with `by` ones on the left, or with what is filled there, repeated where rows are."""
    if filled is None:
        return torch.cat([mask.new_ones(len(mask), by), mask], 1)
    return torch.cat([filled.to(mask).repeat_interleave(len(mask) // len(filled), 0), mask], 1)


def _joined(
    given: dict[str, Any], rows: Tensor, filled: Tensor | None, model: PreTrainedModel, takes: list[str]
) -> dict[str, Any]:
    ids = given.pop("input_ids", None)
    text = given.get("inputs_embeds")
    if text is None:
        text = anatomy(model).table(ids)
    (batch, n_tokens), n_rows = text.shape[:2], rows.shape[1]
    check_room(model, n_tokens, n_rows)
    mask = given.get("attention_mask")
    if mask is None and filled is not None:
        mask = torch.ones(batch, n_tokens, dtype=torch.long, device=text.device)
    given["inputs_embeds"] = torch.cat([rows.to(text.dtype).expand(batch, -1, -1), text], 1)
    if mask is not None:
        given["attention_mask"] = widened(mask, n_rows, filled)
        if given.get("position_ids") is None and _needs_positions(model, mask, filled, takes):
            at = text_positions(given["attention_mask"], 0, n_rows + n_tokens, text.device)
            given["position_ids"] = at + first_position(model)
    if given.get("position_ids") is not None and given["position_ids"].shape[-1] == n_tokens:
        front = torch.arange(n_rows, device=text.device) + first_position(model)
        positions = given["position_ids"] + n_rows
        given["position_ids"] = torch.cat([front.expand(len(positions), -1), positions], 1)
    if given.get("token_type_ids") is not None:
        types = given["token_type_ids"]
        given["token_type_ids"] = torch.cat([types.new_zeros(batch, n_rows), types], 1)
    return given


def _needs_positions(model: PreTrainedModel, mask: Tensor, filled: Tensor | None, takes: list[str]) -> bool:
    """Whether positions must be told, for padding stands before or inside what is text; UserError where they cannot."""
    inside = bool((mask[:, 0] == 0).any())
    before = filled is not None and not bool(filled.all())
    if (inside or before) and "position_ids" in takes:
        return True
    family = model.config.model_type
    if inside:
        raise UserError(
            f"Family {family!r} counts positions through padding, so a context in front of left-padded text would "
            "stand too far off. Pad the text on the right (padding_side='right')."
        )
    if before and not hasattr(model.config, "relative_attention_num_buckets"):
        raise UserError(
            f"Family {family!r} counts positions through padding, so contexts of different lengths cannot stand in "
            "one batch. Give all rows of a batch contexts of one length, or prefixes."
        )
    return False
