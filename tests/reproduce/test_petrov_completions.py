"""Completions are transformers' own; a target is counted as reached when it is written whole, and only then."""

from types import SimpleNamespace

import pytest
import tiny
import torch
import transformers as tf

import tunescope as ts
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import check
from tunescope.reproduce.recipes import petrov_completions as recipe
from tunescope.reproduce.recipes._completions import LENGTH, completions, targets


def hard_of(model):
    return completions(model, model.get_input_embeddings()(torch.arange(tiny.VOCAB)))


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "opt"])
def test_completions_are_what_generate_writes_after_each_token(family):
    model = tiny.make(family)
    ids = torch.arange(3, tiny.VOCAB)[:, None]
    model.generation_config = tf.GenerationConfig(do_sample=False, max_new_tokens=LENGTH, pad_token_id=0)
    expected = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids))[:, 1:]
    assert torch.equal(completions(model, model.get_input_embeddings()(ids[:, 0])), expected)


def test_targets_are_distinct_and_no_token_gives_them():
    model = tiny.make("llama")
    hard = hard_of(model)
    for temperature in (1.0, 2.0, None):
        found = targets(model, temperature, 40, hard, torch.Generator().manual_seed(0))
        assert found.shape == (40, LENGTH)
        rows = set(map(tuple, found.tolist()))
        assert len(rows) == 40 and not rows & set(map(tuple, hard.tolist()))
    assert (
        len(targets(model, 1e-6, 40, hard, torch.Generator().manual_seed(0))) == 0
    )  # greedy, so every one is a token's


def test_a_target_counts_where_all_of_it_is_written_and_only_there():
    model = tiny.make("llama").requires_grad_(False)
    begin = torch.randint(tiny.VOCAB, (12,), generator=torch.Generator().manual_seed(7))  # as `reach` with seed 7
    written = hard_of(model)[begin]
    still = {"rate": 0.0, "steps": 1}
    found = recipe.reach(model, written, still, 7)
    assert (found["contexts"], found["reached"], found["right"]) == (12, 12, LENGTH)
    assert found["distinct"] == len(set(begin.tolist())) == len(written.unique(dim=0))
    wrong = written.clone()
    wrong[:5, -1] = (wrong[:5, -1] + 1) % tiny.VOCAB
    wrong[5:8, 4] = (wrong[5:8, 4] + 1) % tiny.VOCAB
    found = recipe.reach(model, wrong, still, 7)
    assert found["reached"] == 4
    assert found["right"] == pytest.approx((5 * 9 + 3 * 4 + 4 * 10) / 12)


def test_training_reaches_what_virtual_tokens_are_known_to_give():
    model = tiny.make("gpt2", dtype=torch.float32).requires_grad_(False)
    far = 3 * torch.randn(16, 24, generator=torch.Generator().manual_seed(0))
    wanted = completions(model, far)
    settings = {"rate": 0.5, "steps": 60}
    found = recipe.reach(model, wanted, settings, 1)
    assert found["curve"][-1]["loss"] < found["curve"][0]["loss"]
    assert found["reached"] >= 3 > recipe.reach(model, wanted, settings | {"rate": 0.0, "steps": 1}, 1)["reached"]
    assert found["right"] >= 10 * found["reached"] / 16


def test_anyone_can_run_it_and_its_table_says_who_was_asked():
    ask = Ask("petrov-completions", quick=True)
    check(ask, recipe)
    settings = recipe.settings(ask) | {"steps": 2, "targets": {"temperature 1": 3, "uniform": 4}}
    found = [(unit, recipe.work(settings, unit)) for unit in recipe.units(settings)]
    assert found[0][1]["contexts"] == 15 and 1 <= found[0][1]["distinct"] <= 15
    table = recipe.table(settings, found)
    assert [label for label, _ in table.rows] == [
        "every token of the vocabulary",
        "untrained vectors, spread as the tokens are",
        "virtual tokens, targets drawn at temperature 1",
        "virtual tokens, targets uniform",
    ]
    assert [cells[0].text for _, cells in table.rows] == ["15", "15", "3", "4"]
    assert table.rows[0][1][1].mean == found[0][1]["distinct"] / 15
    assert "24,426" in table.rows[0][1][1].paper and "46,812" in table.rows[2][1][1].paper
    assert table.rows[1][1][1].mean == found[1][1]["distinct"] / 15
    assert table.rows[3][1][2].mean == found[3][1]["reached"] / 4


def test_where_there_are_no_targets_the_table_has_no_numbers():
    settings = {"targets": {"temperature 1": 3}, "seeds": 1}
    hard = ({"kind": recipe.HARD}, {"contexts": 5, "distinct": 4})
    table = recipe.table(settings, [hard, ({"kind": "temperature 1", "seed": 0}, {"contexts": 0})])
    assert table.rows[2][1][0].text == "0" and table.rows[2][1][2].mean is None


def test_vectors_that_nobody_trained_are_spread_as_the_tokens_are():
    tokens = torch.randn(4000, 3, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 0.1, 5.0]) + 2
    drawn = recipe._drawn(tokens, torch.Generator().manual_seed(0))
    assert drawn.shape == tokens.shape
    assert torch.allclose(drawn.mean(0), tokens.mean(0), atol=0.4) and torch.allclose(drawn.std(0), tokens.std(0), 0.05)


@pytest.mark.parametrize(
    ("family", "positions", "message"),
    [
        ("bert", 64, "petrov-completions needs a decoder, and --model .* is an encoder"),
        ("t5", 64, "needs a decoder, and --model .* is an encoder-decoder"),
        ("llama", 8, "petrov-completions feeds 10 tokens, and --model .* has 8 positions"),
    ],
)
def test_a_model_that_will_not_do_is_refused_in_one_line(family, positions, message, tmp_path):
    model = tiny.make(family, dtype=torch.float32)
    if positions == 8:
        model = tf.AutoModelForCausalLM.from_config(tf.LlamaConfig(**tiny.LLAMA_LIKE | {"max_position_embeddings": 8}))
    model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ts.UserError, match=message) as caught:
        recipe.settings(Ask("petrov-completions", model=str(tmp_path)))
    assert "\n" not in str(caught.value)


def test_it_takes_no_data_and_needs_a_model_that_is_there():
    with pytest.raises(ts.UserError, match="has no use for --data"):
        check(Ask("petrov-completions", data="x.jsonl"), recipe)
    with pytest.raises(ts.UserError, match="there is no folder"):
        recipe.settings(Ask("petrov-completions", model="./nowhere"))


def test_the_rate_is_in_standard_deviations_of_the_model_s_embeddings(monkeypatch):
    model, rates = tiny.make("llama").requires_grad_(False), []

    def trained(problem, how, seed):
        rates.append(problem.rates["soft"])
        return SimpleNamespace(curve=[])

    monkeypatch.setattr(recipe, "train", trained)
    recipe.reach(model, hard_of(model)[:4], {"rate": 2.0, "steps": 1}, 0)
    assert rates == [pytest.approx(2 * float(model.get_input_embeddings().weight.std()))]
