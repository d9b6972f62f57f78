"""Padded batches of token ids, and what a model's forward wants besides them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.guards.marks import wants_output_start
from tunescope.attachment.share import dealt
from tunescope.models.positions import first_position

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def padded(rows: Sequence[Sequence[int]], value: int, device: torch.device, *, left: bool) -> tuple[Tensor, Tensor]:
    """(ids, mask), both (rows, longest) int64; the mask is 1 on real tokens."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), value)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[index, place] = torch.tensor(row, dtype=torch.long)
        mask[index, place] = 1
    return ids.to(device), mask.to(device)


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The padding id; any id will do under a mask, so the end's, or else 0, where there is none."""
    found = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return int(next(one for one in found if one is not None))


def decoder_keywords(
    model: PreTrainedModel, mask: Tensor, starts: Tensor | None, n_last: int | None = None
) -> dict[str, Tensor]:
    """Positions counted over real tokens (of the last ``n_last`` columns), and where the output starts.

    ``starts``: (batch,) column of the last prompt token; passed on only to models that ask for it.
    """
    keywords = {}
    if "position_ids" in inspect.signature(model.forward).parameters:
        positions = (mask.cumsum(-1) - 1).clamp(min=0) + first_position(model)
        keywords["position_ids"] = positions if n_last is None else positions[:, -n_last:]
    if starts is not None and wants_output_start(model):
        keywords["output_start"] = starts
    return keywords


def batches(lengths: Sequence[int], batch_size: int, *, alike: bool = False) -> list[list[int]]:
    """Indices in batches of similar length, longest first, so that running out of memory happens at once.

    alike: all rows of a batch have one length, so that none is padded.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    groups = [list(some) for _, some in groupby(order, key=lengths.__getitem__)] if alike else [order]
    return [some[start : start + batch_size] for some in groups for start in range(0, len(some), batch_size)]


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """No gradients and no dropout inside; afterwards every module is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def scored(
    model: PreTrainedModel,
    rows: Sequence[Any],
    batch_size: int,
    score: Callable[[list[Any]], Tensor],
    *,
    alike: bool = False,
) -> Tensor:
    """Each row's scores (rows, labels), from those of `batches`; no gradients, no dropout."""

    def work(some: list[int]) -> Tensor:
        return score([rows[index] for index in some])

    return torch.stack(in_batches(model, [len(row.input_ids) for row in rows], batch_size, work, alike=alike))


def in_batches(
    model: PreTrainedModel,
    lengths: Sequence[int],
    batch_size: int,
    work: Callable[[list[int]], Any],
    *,
    deal: bool = True,
    alike: bool = False,
) -> list[Any]:
    """What `work` makes of each row, told `batches` of their numbers; no gradients, no dropout.

    Processes that share the model each do some of the batches, and have all results. deal: False where all do all, for
    what one batch gives depends on those before it.
    """
    cut = batches(lengths, batch_size, alike=alike)
    with evaluating(model):
        done = dealt(model, cut, work) if deal else [work(some) for some in cut]
    found: list[Any] = [None] * len(lengths)
    for some, made in zip(cut, done, strict=True):
        for index, one in zip(some, made, strict=True):
            found[index] = one
    return found


def exact(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
