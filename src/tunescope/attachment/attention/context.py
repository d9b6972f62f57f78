"""Contexts' keys and values in a layer, beside the text's: what they are, who sees them, and products with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tunescope.errors import UserError

FREE = 2**62  # where a free key stands, in a tensor of positions: no window hides it


@dataclass(frozen=True)
class Told:
    """What one call of a stack says to all of its attention modules, whatever the family's layers hand on to them.

    columns: of the text in this call; seen: those that earlier calls had. output_start: see `output`.
    position_ids: (batch or 1, columns), None where they are not one number a column. padded: how much padding stands
    within the row's text in front of each column, which a sliding window counts; None where it is not known.
    """

    columns: int
    seen: int = 0
    output_start: int | Tensor | None = None
    position_ids: Tensor | None = None
    padded: Tensor | None = None


@dataclass(frozen=True)
class Extra:
    """A context's keys and values in one layer, the same for every row of the batch or each row's own.

    key: (kv_heads, n, d_key), or (batch, kv_heads, n, d_key); value: likewise, with d_value; after rotary positions.
    at: (n,) or (batch, n), the position of each key, for keys that stand at positions, FREE of one among them that does
    not; None where all are free.
    infix: seen only by the output; see `output`.
    filled: (batch, n), False where a row has fewer keys than the longest; None where all have as many.
    """

    key: Tensor
    value: Tensor
    at: Tensor | None = None
    infix: bool = False
    filled: Tensor | None = None


def context_visible(extras: tuple[Extra, ...], query: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    """(batch or 1, 1, query, n_context), True where a context's key is seen; None where all are seen by all."""
    parts = [_extra_visible(extra, query, kwargs) for extra in extras]
    if all(part is None for part in parts):
        return None
    rows = max(part.shape[0] for part in parts if part is not None)
    shape = (rows, 1, query.shape[2])
    whole = [
        torch.ones(*shape, extra.key.shape[-2], dtype=torch.bool, device=query.device)
        if part is None
        else part.expand(*shape, extra.key.shape[-2])
        for extra, part in zip(extras, parts, strict=True)
    ]
    return torch.cat(whole, -1)


def _extra_visible(extra: Extra, query: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    near = _by_output(query, kwargs) if extra.infix else _in_window(extra, query, kwargs)
    if extra.filled is None:
        return near
    filled = extra.filled.to(query.device)[:, None, None]
    return filled if near is None else filled & near


def _by_output(query: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    after = output(query.shape[2], kwargs, query.device)
    return None if after is None else after[:, None, :, None]


def _in_window(extra: Extra, query: Tensor, kwargs: dict[str, Any]) -> Tensor | None:
    """Where the context's positions are near enough; None where no window hides any."""
    window = kwargs.get("sliding_window")
    if extra.at is None or window is None:
        return None
    positions = kwargs.get("position_ids")
    if positions is None:
        raise UserError("A context at positions under a sliding window needs position_ids, which this family hides.")
    at = extra.at.to(query.device).view(-1, 1, 1, extra.at.shape[-1])
    positions = positions.to(query.device)[:, None, -query.shape[2] :, None]  # some layers cut queries to the last
    near: Tensor = positions - at < window
    return near


def output(length: int, kwargs: dict[str, Any], device: torch.device) -> Tensor | None:
    """(batch or 1, length), True from the last token of each row's input on; None where all of them are output.

    length: of the queries, which are the call's last columns where a layer has fewer of them than the call.
    kwargs: of the call of attention. output_start, a number or (batch,), is the column of that token; seen, how many
    columns earlier calls had; columns, how many this one has. Without the first it is the last column of a text, and
    all that comes in later calls.
    """
    start, seen, columns = kwargs.get("output_start"), kwargs.get("seen", 0), kwargs.get("columns", length)
    if start is None:
        start = 0 if seen else columns - 1
    seen += columns - length
    if isinstance(start, int):
        if seen >= start:
            return None
        start = torch.tensor([start])
    found: Tensor = torch.arange(seen, seen + length, device=device) >= start.to(device)[:, None]
    return found


def context_keys(extras: tuple[Extra, ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """All contexts' keys and values, one after the other: (kv_heads, n, d), or (batch, kv_heads, n, d).

    Of a model that is split over GPUs a prefix lies where the embeddings are, and what was run where its layer is.
    """
    if len(extras) == 1:
        return extras[0].key.to(like), extras[0].value.to(like)
    return (
        torch.cat([extra.key.to(like) for extra in extras], -2),
        torch.cat([extra.value.to(like) for extra in extras], -2),
    )


def over_context(x: Tensor, context: Tensor) -> Tensor:
    """x (batch, heads, query, a) times a context's (kv_heads, a, b) or (batch, kv_heads, a, b) -> (..., query, b).

    What is the same for all rows is one product with all of them, and no copy a row.
    """
    batch, heads, length, width = x.shape
    kv_heads = context.shape[-3]
    x = x.reshape(batch, kv_heads, -1, width)
    if context.dim() == 4:
        return (x @ context).view(batch, heads, length, -1)
    whole = x.transpose(0, 1).reshape(kv_heads, -1, width) @ context
    return whole.view(kv_heads, batch, -1, whole.shape[-1]).transpose(0, 1).reshape(batch, heads, length, -1)
