"""Contexts by row: each row's own keys and values, padded to the longest and masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.attachment.attention.context import FREE, Extra


def by_row(rows: Sequence[tuple[Extra, ...]], which: Sequence[int]) -> tuple[Extra, ...]:
    """What each row of the batch sees of one attention module's contexts.

    rows: the contexts of each member; which: (batch,) the member that a row takes; one that all take is not copied.
    """
    if len(set(which)) == 1:
        return rows[which[0]]
    plain = _joined([[extra for extra in some if not extra.infix] for some in rows], which, False)
    behind = _joined([[extra for extra in some if extra.infix] for some in rows], which, True)
    return tuple(extra for extra in (plain, behind) if extra is not None)


def _joined(members: Sequence[Sequence[Extra]], which: Sequence[int], infix: bool) -> Extra | None:
    if not any(members):
        return None
    like = next(some[0] for some in members if some)
    lengths = [sum(extra.key.shape[1] for extra in some) for some in members]
    most, device = max(lengths), like.key.device
    row = torch.tensor(which, device=device)
    ordered = list(which) == list(range(len(members)))

    def stacked(part: Callable[[Extra], Tensor], none: Tensor) -> Tensor:
        padded = [_padded([part(extra).to(device) for extra in some] or [none], most) for some in members]
        whole = torch.stack(padded)
        return whole if ordered else whole[row]

    keys = stacked(lambda extra: extra.key, like.key[:, :0])
    values = stacked(lambda extra: extra.value, like.value[:, :0])
    filled = None
    if min(lengths) < most:
        filled = torch.arange(most, device=device) < torch.tensor(lengths, device=device)[row, None]
    at = None
    if any(extra.at is not None for some in members for extra in some):
        at = stacked(_at, like.key.new_empty(1, 0, 1, dtype=torch.long))[:, 0, :, 0]
    return Extra(keys, values, at, infix, filled)


def _at(extra: Extra) -> Tensor:
    """(1, n, 1), positions in the shape of keys."""
    free = torch.full((extra.key.shape[1],), FREE, device=extra.key.device)
    return (free if extra.at is None else extra.at.to(free.device)).view(1, -1, 1)


def _padded(parts: Sequence[Tensor], most: int) -> Tensor:
    """(kv_heads, n, d) tensors one after the other, with zeros up to `most`."""
    whole = parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)
    return F.pad(whole, (0, 0, 0, most - whole.shape[1]))
