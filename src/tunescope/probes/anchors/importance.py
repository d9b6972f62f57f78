"""How much each position of the demonstrations is worth keeping, by measured saliency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import resting
from tunescope.errors import UserError
from tunescope.methods.contexts.anchors import check_causal
from tunescope.models.anatomy import anatomy
from tunescope.probes.anchors.prompts import Choices, Prompt, batch, cut
from tunescope.probes.anchors.saliency import answers, saliency

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def importance(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    choices: Choices,
    *,
    at_once: int = 8,
) -> Tensor:
    """(length of the demonstrations,): saliency of all that a query takes from each position, over all layers.

    The sum over layers, over the query's tokens i and over the prompts of I(i, j). What demonstrations take from one
    another does not count: kept keys were made with the whole text, so a position that only they read can go. The loss
    is that of the model's own answer, so no labels are needed and it is loyalty to that answer which is asked for; a
    sure answer counts less than one that is about to change. It is of first order, one position at a time: two
    positions that say the same are both worth little once one is kept, which it cannot see.

    Args:
        prompts: some queries behind the same demonstrations; others than those that loyalty is measured on.

    Raises UserError for a model that is no decoder, in which nothing is kept, and for prompts that differ in their
    demonstrations.
    """
    check_causal(anatomy(model).kind)
    if len({prompt.spans.ids for prompt in prompts}) != 1:
        raise UserError("Importance is of one set of demonstrations: give prompts that share it, one at least.")
    length = len(prompts[0].spans.ids)
    total = torch.zeros(length, dtype=torch.float64)
    tokens = torch.tensor(choices.tokens, device=model.device)
    for numbers in cut(model, prompts, choices.lead, at_once):
        one = batch(model, tokenizer, [prompts[number] for number in numbers], choices.lead)
        with resting(model), torch.no_grad():
            own = answers(model, one)[:, tokens].argmax(-1)
        columns = one.offset[:, None] + torch.arange(length, device=one.offset.device)  # (batch, length)
        asks = torch.arange(one.real.shape[1], device=one.offset.device) >= (one.offset + length)[:, None]

        def take(_name: str, found: Tensor, columns: Tensor = columns, asks: Tensor = asks) -> None:
            found = found[..., -asks.shape[1] :]  # an attached context's keys come first
            taken = (found * asks[:, :, None]).sum(1)  # (batch, key)
            total.add_(taken.gather(1, columns).cpu().double().sum(0))

        saliency(model, one, tokens, own, take)
    return total


def most_important(worth: Tensor, size: int) -> tuple[int, ...]:
    """The `size` positions worth most, ascending; of equals, the earlier."""
    order = worth.argsort(descending=True, stable=True)
    return tuple(sorted(order[:size].tolist()))
