"""Single swaps of a prompt's tokens, ranked by the gradient and compared exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tunescope.search.loop import DROPPED
from tunescope.search.objective import Objective
from tunescope.tasks.task import Encoded


def shortlist(gradient: Tensor, table: Tensor, count: int) -> Tensor:
    """(length, count): for each position the rows of the table that lower the loss most, to first order; best first.

    The gradient of the loss at the one-hot choice of a token is the gradient at its embedding times the table
    (HotFlip, Ebrahimi et al. 2018).

    Args:
        gradient: (length, width), at the prompt's embeddings.
    """
    return (gradient @ table.T).topk(min(count, len(table)), largest=False).indices


def swapped(prompt: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """(n, length): the prompt n times, each with one token put at one position."""
    found = prompt.repeat(len(positions), 1)
    found[torch.arange(len(positions)), positions] = tokens
    return found


def best(
    goal: Objective, prompts: Tensor, batch: Sequence[Encoded], current: Tensor | None = None
) -> tuple[Tensor, float] | None:
    """The prompt with the least loss on the rows, the first of equals, and its loss; None where none is left that has
    a loss.

    Prompts that do not come back to their own tokens are dropped before they cost anything, and counted.

    Args:
        current: the prompt that stays where no other has less loss. It is scored beside them, for the loss that comes
            with a gradient is computed otherwise, and in 16 bits differs by more than a swap does.
    """
    stays = torch.tensor(goal.words.all_come_back([goal.ids(prompt) for prompt in prompts]))
    goal.counts[DROPPED] += int((~stays).sum())
    prompts = prompts[stays]
    if not len(prompts):
        return None
    if current is not None:
        prompts = torch.cat([current[None], prompts])
    losses = goal.losses(prompts, batch)
    index = int(losses.argmin())
    if losses[index].isinf():
        return None
    return prompts[index], float(losses[index])
