"""Scores that are NaN: refused where the model makes them of a row, answered where padding alone does."""

import re

import pytest
import tiny
import torch
from transformers import GenerationConfig

from tunescope.errors import UserError
from tunescope.tasks.answers import choices
from tunescope.tasks.answers.beam_search import BeamSearch
from tunescope.tasks.answers.decode import Sampling, greedy, sampled, written
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning
from tunescope.tasks.task import Encoded

TOKENIZER = tiny.tokenizer()
PROMPTS = [(5, 17, 23, 8, 61, 9, 30, 44, 12, 13, 40, 7), (90, 3, 4), tuple(range(20, 40)), (11, 12, 13)]
ROWS = [Encoded(row, ids, (7, 2), None, ("w7",), "") for row, ids in enumerate(PROMPTS, start=4)]
REFUSED = re.escape("The model's scores are no numbers (NaN), first on row 4: its weights may hold some, or its")


def spoilt(name):
    """Whose every logit is NaN."""
    network = tiny.make(name)
    with torch.no_grad():
        next(weight for key, weight in network.named_parameters() if key.endswith("norm.weight") or "ln" in key).fill_(
            float("nan")
        )
    return network


def told(network, made):
    """Has the network say `made` (passes, rows) next, and NaN where that is None; gives what counts its passes."""
    passes = []

    def instead(_module, _given, out):
        out.logits.zero_()
        for row, token in enumerate(made[len(passes)]):
            out.logits[row] = float("nan") if token is None else 0
            out.logits[row, :, token or 0] += 9
        passes.append(len(out.logits))

    network.register_forward_hook(instead)
    return passes


@pytest.mark.parametrize("name", ["gpt2", "t5", "bart"])
def test_texts_of_a_model_whose_weights_are_nan_are_refused(name):
    network, beams = spoilt(name), BeamSearch(beams=2, no_repeat_ngram=2)
    with pytest.raises(UserError, match=REFUSED):
        greedy(network, ROWS, TOKENIZER, 3, 2)
    with pytest.raises(UserError, match=REFUSED):
        written(network, ROWS, TOKENIZER, beams, 3, 2)
    with pytest.raises(UserError, match=REFUSED):
        sampled(network, ROWS, TOKENIZER, 3, 2, Sampling(0.7, 0))


@pytest.mark.parametrize("task", [Generation(max_new_tokens=3), Reasoning(max_new_tokens=3)])
def test_a_task_that_writes_refuses_them_as_one_with_labels_does(task):
    network = spoilt("gpt2")
    with pytest.raises(UserError, match=REFUSED):
        task.predict(network, ROWS, TOKENIZER)
    with pytest.raises(UserError, match=REFUSED):
        choices.all_scores(network, ROWS, [(5,), (6, 7)], TOKENIZER)


def test_one_row_is_tried_again_and_not_all():
    passes = told(network := tiny.make("gpt2"), [[None] * 4] * 3 + [[None]] * 3)
    with pytest.raises(UserError, match=REFUSED):
        greedy(network, ROWS, TOKENIZER, 3, 4)
    assert passes == [4, 4, 4, 1, 1, 1]


def test_what_is_nan_behind_the_end_of_a_text_is_no_part_of_it():
    passes = told(network := tiny.make("gpt2"), [[5, 2], [6, None], [7, None], [2, None]])
    assert greedy(network, [ROWS[1], ROWS[3]], TOKENIZER, 9, 2) == ["w5 w6 w7", ""]
    assert passes == [2, 2, 2, 2]


def test_what_is_nan_at_the_last_token_is():
    told(network := tiny.make("gpt2"), [[5, 5], [6, None], [2, 2], [5], [None], [2]])
    with pytest.raises(UserError, match="first on row 7"):
        greedy(network, [ROWS[1], ROWS[3]], TOKENIZER, 3, 2)


def test_a_text_that_ends_by_what_was_nan_is_refused_and_not_empty():
    told(network := tiny.make("gpt2"), [[2, None], [None]])  # what is chosen there is token 0, which ends a text here
    with pytest.raises(UserError, match="first on row 7"):
        greedy(network, [ROWS[1], ROWS[3]], TOKENIZER, 3, 2, stop=0)


def alone(network, how):
    """Each row by transformers' own generate, without padding."""
    texts = []
    for ids in PROMPTS:
        config = GenerationConfig(eos_token_id=2, pad_token_id=0, max_new_tokens=5, **how)
        given = torch.tensor([ids])
        out = network.generate(given, attention_mask=torch.ones_like(given), generation_config=config)
        texts.append(TOKENIZER.decode(out[0, len(ids) :], skip_special_tokens=True).strip())
    return texts


def test_rows_that_padding_alone_makes_nan_are_answered_as_they_are_alone():
    network = tiny.make("gemma2", dtype=torch.float64, attention="eager")
    given = torch.tensor([[0] * 17 + [90, 3, 4], list(PROMPTS[2])])
    assert network(given, attention_mask=(given > 0).long()).logits[0, -1].isnan().all()  # transformers' own
    assert greedy(network, ROWS, TOKENIZER, 5, 4) == alone(network, {})
    assert written(network, ROWS, TOKENIZER, BeamSearch(beams=2), 5, 4) == alone(network, {"num_beams": 2})
    found = choices.all_scores(network, ROWS, [(5,), (6,)], TOKENIZER)
    with torch.no_grad():
        logits = torch.stack([network(torch.tensor([ids])).logits[0, -1] for ids in PROMPTS])
    torch.testing.assert_close(found, logits.log_softmax(-1)[:, [5, 6]], rtol=0, atol=1e-10)
