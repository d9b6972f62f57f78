"""Embeddings in front of an encoder's text: a context there runs as tokens, for its keys look at the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.embed_scale import embed_scale
from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.site_hooks import TEXT_IDS, TEXT_MASK, refuse_tuple
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.positions import HIDDEN, check_room, first_position, from_first, text_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Made = tuple[Tensor, Tensor | None]


@contextmanager
def embeddings_joined(
    model: PreTrainedModel, made: Callable[[], Made | None], *, by_row: bool = False
) -> Iterator[None]:
    """In an encoder a token context runs as tokens, for its keys look at the text.

    An encoder alone gives states of the text's length, context cut off, and attention over [context | text]; in an
    encoder-decoder the decoder attends to the context's states too, as in prompt tuning (Lester et al. 2021).

    made: before each pass, the embeddings to put in front, (1, n, width) or (batch, n, width), and where each row has
    one, (batch, n), or None for everywhere; None for nothing to put there. by_row: before a pass of the decoder too,
    those that its rows ask for.
    """
    entry = anatomy(model).entries["encoder"]
    front = _Front(model, made, argument_names(entry), by_row)
    handles = [entry.register_forward_pre_hook(uncompiled(front.enter), with_kwargs=True)]
    if anatomy(model).kind == "encoder":
        handles.append(entry.register_forward_hook(front.leave))
        if isinstance(getattr(entry, "pooler", None), nn.Module):
            handles.append(entry.pooler.register_forward_pre_hook(front.pool))
    else:
        handles.append(anatomy(model).entries["decoder"].register_forward_pre_hook(front.cross, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        _forget(entry)


def _forget(entry: nn.Module) -> None:
    """The text's own mask and ids, of a pass with something in front of it."""
    for name in (TEXT_MASK, TEXT_IDS):
        entry.__dict__.pop(name, None)


class _Front:
    """The context of the encoder's pass that is on: how long it is, and where the text's states come out."""

    def __init__(self, model: PreTrainedModel, made: Callable[[], Made | None], names: list[str], by_row: bool) -> None:
        self.model, self.made, self.names, self.by_row = model, made, names, by_row
        self.length = 0
        self.columns = 0  # of context and text
        self.order: Tensor | None = None
        self.at: Tensor | None = None

    def enter(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[()], dict[str, Any]]:
        given, found = dict(zip(self.names, args, strict=False)) | kwargs, self.made()
        _forget(module)
        self.length, self.columns, self.order, self.at = 0, 0, None, None
        if found is not None:
            module.__dict__[TEXT_IDS] = given.get("input_ids")
            mask = module.__dict__[TEXT_MASK] = _by_column(given.get("attention_mask"))
            if mask is not None:
                given["attention_mask"] = mask
            self.length = found[0].shape[1]
            given, self.order = _joined(given, *found, self.model, takes=self.names)
            self.columns = given["inputs_embeds"].shape[1]
            if self.order is not None:
                self.at = self.order.argsort(1)[:, self.length :]
        return (), given

    def leave(self, _module: nn.Module, _args: object, output: Any) -> Any:
        refuse_tuple(output)
        output["last_hidden_state"] = self._of_text(output.last_hidden_state)
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(map(self._of_text, output.hidden_states))
        if output.get("attentions") is not None:
            output["attentions"] = tuple(map(self._from_text, output.attentions))
        return output

    def pool(self, _module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self._of_text(args[0]), *args[1:])

    def _of_text(self, states: Tensor) -> Tensor:
        if self.at is None:
            return states[:, self.length :]
        return states.gather(1, _like(self.at.to(states.device), states))

    def _from_text(self, weights: Tensor | None) -> Tensor | None:
        """(batch, heads, text, prefixes + context + text); what is over no pairs of columns stays as it is."""
        if weights is None or weights.dim() != 4 or not 0 < self.columns == weights.shape[2] <= weights.shape[3]:
            return weights
        if self.order is None:
            return weights[:, :, self.length :]
        order = self.order.argsort(1).to(weights.device)[:, None]
        heads, columns = weights.shape[1], weights.shape[3]
        rows = order[:, :, self.length :, None].expand(-1, heads, -1, columns)
        before, found = weights.gather(2, rows).tensor_split([columns - self.columns], 3)
        return torch.cat([before, found.gather(3, order[:, :, None].expand(-1, heads, found.shape[2], -1))], 3)

    def cross(
        self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The decoder is told of the context's states by the call itself: the encoder may have run others since."""
        mask, states = kwargs.get("encoder_attention_mask"), kwargs.get("encoder_hidden_states")
        if states is None:
            return args, kwargs
        if mask is not None and mask.shape[-1] != states.shape[1]:
            mask = _by_column(mask)
        length, filled = self._in_front(states, mask)
        if mask is None and filled is not None:
            mask = states.new_ones(len(states), states.shape[1] - length, dtype=torch.long)
        if mask is not None and length > 0:
            order = _behind_padding(mask, length, filled)
            kwargs["encoder_attention_mask"] = widened(mask, length, filled).gather(1, order)
        return args, kwargs

    def _in_front(self, states: Tensor, mask: Tensor | None) -> tuple[int, Tensor | None]:
        """How many columns of an encoder's states are a context's, and where each row has one, (batch, n), or None."""
        columns = 0 if mask is None else states.shape[1] - mask.shape[-1]
        if not self.by_row:
            return columns, None
        rows, filled = self.made() or (None, None)
        length = 0 if rows is None else rows.shape[1]
        if mask is None or columns == length:
            return length, filled
        if columns == 0 and filled is None:
            return 0, None
        raise UserError(
            f"encoder_outputs of {states.shape[1]} columns came with an attention_mask of {mask.shape[-1]}, where the "
            f"rows asked for put {length} in front of a text: give the rows= and the text's own attention_mask that "
            "the encoder was called with."
        )


def _by_column(mask: Tensor | None) -> Tensor | None:
    """The mask as (batch, length), also where it was given as transformers makes it of that, for every pair of tokens.

    Raises UserError where that says more: what the context's tokens would see is not told.
    """
    if mask is None or mask.dim() == 2:
        return mask
    if mask.dim() == 4:
        hidden = ~mask if mask.dtype == torch.bool else mask <= HIDDEN
        one = hidden[:, 0, 0]
        is_same = bool((hidden == one[:, None, None]).all())
        if is_same and (mask.dtype == torch.bool or bool((hidden | (mask == 0)).all())):
            return (~one).long()
    raise UserError(
        f"An encoder's attention_mask of shape {tuple(mask.shape)} says more than which tokens are padding, so what "
        "the embeddings in front of its text see is not told: give a mask (batch, length), or attach a prefix."
    )


def widened(mask: Tensor, by: int, filled: Tensor | None = None) -> Tensor:
    """A (batch, length) mask with `by` ones on the left, or with what is filled there."""
    return torch.cat([mask.new_ones(len(mask), by) if filled is None else filled.to(mask), mask], 1)


def _joined(
    given: dict[str, Any], rows: Tensor, filled: Tensor | None, model: PreTrainedModel, takes: list[str]
) -> tuple[dict[str, Any], Tensor | None]:
    """The call with the context in it, and (batch, context + text), which comes where; None for one behind the other.

    In an encoder the context stands right before each row's text, behind its padding: windows are of columns.
    """
    ids = given.pop("input_ids", None)
    text = given.get("inputs_embeds")
    if text is None:
        text = anatomy(model).table(ids)
        text = text if (factor := embed_scale(model)) == 1 else text * factor
    (batch, n_tokens), n_rows = text.shape[:2], rows.shape[1]
    check_room(model, n_tokens, n_rows)
    mask = given.get("attention_mask")
    if mask is not None and mask.shape[1] != n_tokens:
        raise UserError(f"The attention_mask has {mask.shape[1]} columns, and the text {n_tokens}: give one a token.")
    if mask is not None:
        mask = mask.expand(batch, -1)
    elif filled is not None:
        mask = torch.ones(batch, n_tokens, dtype=torch.long, device=text.device)
    parts = {"inputs_embeds": torch.cat([rows.to(text).expand(batch, -1, -1), text], 1)}
    positions = given.get("position_ids")
    if positions is not None and positions.shape[-1] == n_tokens:
        parts["position_ids"] = _moved(positions.expand(batch, -1), n_rows, filled, first_position(model))
    parts |= _beside_each(given, n_rows)
    order, counted = None, _counted(model, ids, mask) if positions is None and "position_ids" in takes else None
    if counted is not None:
        parts["position_ids"] = from_first(widened(counted, n_rows, filled), first_position(model))
    if mask is not None:
        parts["attention_mask"] = widened(mask, n_rows, filled)
        needs = positions is None and counted is None and _needs_positions(model, mask, filled, takes)
        if bool((mask[:, 0] == 0).any()):
            order = _behind_padding(mask, n_rows, filled)
            parts = {name: value.gather(1, _like(order, value)) for name, value in parts.items()}
        if needs:
            known = text_positions(parts["attention_mask"], 0, n_rows + n_tokens, text.device)
            parts["position_ids"] = known + first_position(model)
    return given | parts, order


def _beside_each(given: Mapping[str, Any], n_rows: int) -> dict[str, Tensor]:
    """What else is given of each token, with zeros for the context: types (ERNIE has two), and LayoutLM's boxes."""
    if given.get("xpath_tags_seq") is not None:
        raise UserError(
            "xpath_tags_seq say where each token stands in a page, and embeddings in front stand nowhere in it: call "
            "the model without them, or use a prefix."
        )
    found = {name: given[name] for name in ("token_type_ids", "task_type_ids", "bbox") if given.get(name) is not None}
    return {
        name: torch.cat([value.new_zeros(len(value), n_rows, *value.shape[2:]), value], 1)
        for name, value in found.items()
    }


def _counted(model: PreTrainedModel, ids: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """(batch, tokens), 1 where RoBERTa and its kin count an id, which is not the padding's; None in other families."""
    first = first_position(model)
    if not first or ids is None:
        return None
    real = (ids != first - 1).long()
    return real if mask is None else real * mask.long()


def _behind_padding(mask: Tensor, n_rows: int, filled: Tensor | None) -> Tensor:
    """(batch, n_rows + tokens), the order of the joined columns in which a row's padding comes first."""
    context = mask.new_ones(len(mask), n_rows) if filled is None else filled.to(mask)
    is_left = mask.cumsum(1) == 0
    return torch.cat([context, torch.where(is_left, 0, 2).to(mask)], 1).argsort(dim=1, stable=True)


def _like(order: Tensor, value: Tensor) -> Tensor:
    return order if value.dim() == 2 else order[..., None].expand(*order.shape, value.shape[-1])


def _moved(positions: Tensor, n_rows: int, filled: Tensor | None, first: int) -> Tensor:
    """(batch, n_rows + tokens), positions that were given for the text, and the context's in front of them."""
    if filled is None:
        front = torch.arange(n_rows, device=positions.device).expand(len(positions), -1)
        return torch.cat([front + first, torch.where(positions < first, positions, positions + n_rows)], 1)
    count = filled.to(positions.device).cumsum(1)
    moved = torch.where(positions < first, positions, positions + count[:, -1:])  # a padding's own position stays
    return torch.cat([(count - 1).clamp(min=0) + first, moved], 1)


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
