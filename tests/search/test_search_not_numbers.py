"""Losses, gradients and scores that are no numbers: never taken for the best, and told where nothing else is left."""

import masked
import pytest
import torch
from reference import searches as literal
from search_tools import bench
from test_infilling import asked
from test_objective import opened, prompts

from tunescope.errors import UserError
from tunescope.search.methods._infilling import filled
from tunescope.search.methods._swaps import best
from tunescope.search.methods.label_words import _scores
from tunescope.search.names import parse

NAN = float("nan")


def lost_behind(model, tokens):
    """All behind one of the tokens is no number, as where 16 bits overflow."""

    def spoil(_module, args, out):
        return out.masked_fill(torch.isin(args[0], torch.tensor(tokens))[..., None], NAN)

    return model.get_input_embeddings().register_forward_hook(spoil)


def test_a_prompt_whose_loss_is_no_number_is_never_the_best():
    given = bench("gpt2")
    with opened(given) as goal:
        some = prompts(goal, 8)
        bad = sorted(
            {goal.ids(prompt)[0] for prompt in some} - {token for row in goal.rows for token in row.input_ids}
        )[:3]
        lost = [bool({*goal.ids(prompt)} & {*bad}) for prompt in some]
        handle = lost_behind(given.model, bad)
        found = best(goal, some, goal.rows)
        nothing = best(goal, some[torch.tensor(lost)], goal.rows)
        handle.remove()
        rest = [goal.ids(prompt) for prompt, one in zip(some, lost, strict=True) if not one]
    expected = [literal.gradient(given.model, ids, goal.rows, ())[0] for ids in rest]
    assert 0 < sum(lost) < 8
    assert goal.ids(found[0]) == rest[expected.index(min(expected))]
    assert found[1] == pytest.approx(min(expected))
    assert nothing is None
    assert goal.counts["prompts whose loss was no number"] == 2 * sum(lost)


STEPS = ["pez", "pez:optimizer=sgd,keeps=projected", "autoprompt", "autoprompt:mode=projected", "gcg", "fluentprompt"]


@pytest.mark.parametrize("typed", STEPS)
def test_a_gradient_that_is_no_number_ends_a_search_in_one_line(typed):
    given = bench("gpt2")

    def overflow(_module, _args, out):
        if out.requires_grad:
            out.register_hook(lambda gradient: gradient * float("inf"))

    given.model.transformer.h[0].mlp.register_forward_hook(overflow)
    more = ":" if ":" not in typed else ","
    with pytest.raises(UserError, match=r"gradient of a prompt's loss is no number.*Load it in float32"):
        parse(f"{typed}{more}length=2,batch=4").search(given, 1500, 0, lambda line: None)


def test_label_words_of_rows_that_padding_makes_no_numbers_are_those_of_each_alone():
    """Transformers' Gemma 2 in float64 has NaN for a row that is padded on the left, and numbers for it alone."""
    given = bench("gemma2")
    rows = given.encoded("train", room=None)
    assert len({len(row.input_ids) for row in rows}) > 1
    got = _scores(given, rows, range(3, 90))
    with torch.no_grad():
        each = [given.model(input_ids=torch.tensor([row.input_ids])).logits[0, -1].log_softmax(-1) for row in rows]
    torch.testing.assert_close(got, torch.stack(each)[:, 3:90], rtol=0, atol=1e-10)


def test_label_words_of_weights_that_are_no_numbers_are_refused():
    given = bench("gpt2")
    with torch.no_grad():
        given.model.transformer.ln_f.weight[0] = NAN
    with pytest.raises(UserError, match="no numbers"):
        _scores(given, given.encoded("train", room=None), range(3, 90))


def test_a_writer_of_templates_whose_scores_are_no_numbers_is_refused():
    model, tokenizer = masked.make("t5")
    texts, allowed = asked(tokenizer, 1, 2)
    with torch.no_grad():
        model.encoder.final_layer_norm.weight[0] = NAN
    with pytest.raises(UserError, match=r"template: the scores of the model that writes are no numbers"):
        filled(model, tokenizer, texts, allowed, 3)
