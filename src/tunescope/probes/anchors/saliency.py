"""Saliency of attention: how much the loss would move with each weight, |sum over heads of A * dL/dA|."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.attachment.attention.edit import editing, watching
from tunescope.attachment.attention.function import Edit
from tunescope.attachment.attention.reach import reached, resting
from tunescope.attachment.site_hooks import frozen, logits_at
from tunescope.probes.anchors.prompts import Batch
from tunescope.tasks.answers.not_numbers import refused

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Take = Callable[[str, Tensor], None]


def saliency(
    model: PreTrainedModel, batch: Batch, choices: Tensor, gold: Tensor, take: Take, *, at_once: int | None = None
) -> Tensor:
    """Hand the saliency of every attention module to `take(name, (batch, query, key))`, and return the class logits.

    The loss of a row is the cross-entropy over the classes alone (Wang et al. 2023, section 2.1). Rows do not mix: a
    row's saliency is the same in any batch. Attention of a context that is attached comes first among the keys.

    Args:
        choices: (classes,), the token that tells each class from the others.
        gold: (batch,), the index of the class that the loss is taken of.
        at_once: attention modules whose gradients are taken in one pass back; all, if not given. Fewer take less
            memory and more passes.

    Returns the logits (batch, classes), without gradients.
    """
    names = [found.name for found in reached(model)]
    size = at_once or len(names)
    for start in range(0, len(names), size):
        logits = _pass(model, batch, choices, gold, names[start : start + size], take)
    return logits


def _pass(
    model: PreTrainedModel, batch: Batch, choices: Tensor, gold: Tensor, names: Sequence[str], take: Take
) -> Tensor:
    """One run and one way back; the graph begins at the first of the modules."""
    with ExitStack() as stack:
        stack.enter_context(frozen(model))
        stack.enter_context(resting(model))
        stack.enter_context(editing(model, {name: _watched(name, take) for name in names}))
        with torch.enable_grad():
            logits = answers(model, batch)[:, choices]
            F.cross_entropy(logits, gold, reduction="sum").backward()  # type: ignore[no-untyped-call]
    return logits.detach()


def _watched(name: str, take: Take) -> Edit:
    def told(weights: Tensor, gradient: Tensor) -> None:
        exact = _exact(gradient)  # products of two small numbers are nothing in 16 bits
        take(name, (weights.to(exact) * gradient.to(exact)).sum(1).abs())

    return watching(told)


def answers(model: PreTrainedModel, batch: Batch) -> Tensor:
    """(batch, vocabulary): what the model says where the answer begins, in float32 at least.

    Raises UserError for scores that are no numbers, which would count as an answer.
    """
    length = batch.inputs["decoder_input_ids" if "decoder_input_ids" in batch.inputs else "input_ids"].shape[1]
    where = torch.zeros(len(batch.real), length, dtype=torch.bool, device=batch.real.device)
    where[:, batch.answer] = True
    with logits_at(model, where):
        logits: Tensor = model(**batch.inputs, use_cache=False).logits
    if (lost := logits.isnan().any(-1)).any():
        raise refused(batch.prompts[int(lost.nonzero()[0, 0])].query)
    return logits.to(_exact(logits))


def _exact(like: Tensor) -> torch.dtype:
    return torch.promote_types(like.dtype, torch.float32)
