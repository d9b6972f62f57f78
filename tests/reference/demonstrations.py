"""LM-BFF's demonstrations written out (Gao et al. 2021, section 6), a query, a set and a word at a time."""

from typing import Any

import torch
from torch import Tensor

CONTENT_FREE = ("N/A", "", "[MASK]")  # Zhao et al. 2021, section 5


def half(query: Tensor, states: Tensor, members: list[int], most: int) -> set[int]:
    """The `most` members of the highest cosine; of equals the earlier."""
    by_cosine = sorted(members, key=lambda row: (-float(torch.cosine_similarity(query, states[row], dim=0)), row))
    return set(by_cosine[:most])


@torch.no_grad()
def scores(model: Any, ids: list[int], words: list[list[int]], place: int | None, lead: list[int]) -> Tensor:
    """(words,): the logit of each word at a mask (place), or else the sum of its tokens' log-probabilities."""
    if place is not None:
        logits = model(input_ids=torch.tensor([ids])).logits[0, place]
        return torch.stack([logits[word[0]] for word in words]).double()
    found = []
    for word in words:
        total = torch.zeros((), dtype=torch.float64)
        for at, token in enumerate(word):
            if model.config.is_encoder_decoder:
                before = torch.tensor([[model.config.decoder_start_token_id, *lead, *word[:at]]])
                logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=before).logits[0, -1]
            else:
                logits = model(input_ids=torch.tensor([[*ids, *word[:at]]])).logits[0, -1]
            total += logits.double().log_softmax(-1)[token]
        found.append(total)
    return torch.stack(found)


def answer(of_sets: list[Tensor], content_free: list[list[Tensor]] | None = None) -> Tensor:
    """(words,): the mean over sets of the words' scores; of_sets and content_free (set -> text -> scores).

    With content_free each set's probabilities, normalised over the words, are divided by the mean of those that the
    texts without content have behind the same set.
    """
    total = torch.zeros_like(of_sets[0])
    for number, one in enumerate(of_sets):
        if content_free is None:
            total += one
        else:
            prior = sum(free.softmax(-1) for free in content_free[number]) / len(content_free[number])
            total += (one.softmax(-1) / prior).log()
    return total / len(of_sets)
