"""What a model writes after one token of context, and sequences to be written that no token gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LENGTH = 10  # tokens of a completion
ROUNDS = 20  # of drawing, before fewer targets are taken than asked for
TOGETHER = 512  # contexts completed at once


def completions(model: PreTrainedModel, embeddings: Tensor) -> Tensor:
    """(contexts, LENGTH): what the model writes greedily after each embedding (contexts, width) alone.

    No other token stands in front, and an end of sequence is a token like any other.
    """
    with torch.no_grad():
        return torch.cat([_written(model, part, None, None) for part in torch.split(embeddings, TOGETHER)])


def targets(
    model: PreTrainedModel, temperature: float | None, count: int, without: Tensor, generator: torch.Generator
) -> Tensor:
    """(at most `count`, LENGTH): distinct sequences, none of them a row of `without`.

    Drawn from the model after a random token at a temperature, or uniformly from the vocabulary (None). Fewer than
    `count` where the model's own are too few.
    """
    taken: set[tuple[int, ...]] = set(map(tuple, without.tolist()))
    found: list[tuple[int, ...]] = []
    for _ in range(ROUNDS):
        for row in map(tuple, _drawn(model, temperature, count, generator).tolist()):
            if row not in taken and len(found) < count:
                taken.add(row)
                found.append(row)
        if len(found) == count:
            break
    return torch.tensor(found)


def _drawn(model: PreTrainedModel, temperature: float | None, count: int, generator: torch.Generator) -> Tensor:
    size = model.config.vocab_size
    if temperature is None:
        return torch.randint(size, (count, LENGTH), generator=generator)
    begin = anatomy(model).table(torch.randint(size, (count,), generator=generator))
    with torch.no_grad():
        return _written(model, begin, temperature, generator)


def _written(
    model: PreTrainedModel, begin: Tensor, temperature: float | None, generator: torch.Generator | None
) -> Tensor:
    """(contexts, LENGTH) after embeddings (contexts, width); greedy where the temperature is None."""
    out, ids = model(inputs_embeds=begin[:, None], use_cache=True), []
    for _ in range(LENGTH):
        logits = out.logits[:, -1]
        if temperature is None:
            ids.append(logits.argmax(-1))
        else:
            ids.append(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0])
        if len(ids) < LENGTH:
            out = model(input_ids=ids[-1][:, None], past_key_values=out.past_key_values, use_cache=True)
    return torch.stack(ids, 1)
