"""The prompt that a search begins with: random allowed tokens, or the label words over and over."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tunescope.attachment.context_keys import embedder
from tunescope.errors import UserError
from tunescope.search.methods._nearest import nearest
from tunescope.search.objective import Objective
from tunescope.tasks.task import labelled

From = Literal["vocabulary", "labels"]
DRAWS = 50  # tokens tried at a position, of which one should go with those before it


def begun(goal: Objective, init_from: From, generator: torch.Generator) -> Tensor:
    """(length,) of rows of the objective's table; it comes back to its own tokens where one that does was found.

    Raises:
        UserError: label words are asked for, and the task has none.
    """
    return _labels(goal) if init_from == "labels" else _random(goal, generator)


def _random(goal: Objective, generator: torch.Generator) -> Tensor:
    """A token at a time, each drawn again where it would merge with those before it."""
    prompt = torch.empty(0, dtype=torch.long)
    for _ in range(goal.length):
        for _ in range(DRAWS):
            longer = torch.cat([prompt, torch.randint(len(goal.words.ids), (1,), generator=generator)])
            if goal.words.comes_back(goal.ids(longer)):
                break
        prompt = longer
    return prompt


def _labels(goal: Objective) -> Tensor:
    """The tokens of the label words as a text, over and over, each by the allowed token that is nearest to it."""
    task = goal.bench.task
    if not task.is_labelled:
        raise UserError("init_from=labels begins with label words, which only a classification has; leave it out.")
    words = " ".join(labelled(task).words.values())
    text = " ".join([words] * goal.length)  # each is a token at least
    ids = goal.words.tokenizer(text, add_special_tokens=False)["input_ids"][: goal.length]
    rows = embedder(goal.bench.model)(torch.tensor(ids)).to(goal.table.dtype)
    return nearest(goal.table, "euclidean")(rows).cpu()
