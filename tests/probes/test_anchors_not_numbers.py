"""Scores that are no numbers are no answers: they are told, and never counted as the first class."""

import pytest
import tiny
import torch
from anchor_tools import prompted

from tunescope.errors import UserError
from tunescope.probes.anchors.loyalty import Queries
from tunescope.probes.anchors.round import Round


def test_rows_that_padding_makes_no_numbers_are_refused_and_alone_they_are_answered():
    """Transformers' Gemma 2 in float64 has NaN for a row that is padded on the left, and numbers for it alone."""
    model = tiny.make("gemma2")
    prompts, told_apart = prompted(model)
    assert len({len(prompt.ids) for prompt in prompts}) > 1

    def asked(some, at_once):
        return Round(model, tiny.tokenizer(), told_apart, ("a", "b", "c"), some, 0, at_once=at_once)

    with pytest.raises(UserError, match=r"scores are no numbers \(NaN\), first on row 2"):
        asked(prompts, 2).logits  # noqa: B018
    alone = [
        model(input_ids=torch.tensor([[*prompt.ids]])).logits[0, -1, list(told_apart.tokens)] for prompt in prompts
    ]
    assert asked(prompts, 1).predicted.tolist() == [int(one.argmax()) for one in alone]
    queries = Queries(model, tiny.tokenizer(), [prompt.query for prompt in prompts], told_apart)
    with pytest.raises(UserError, match="no numbers"):
        queries.logits()
