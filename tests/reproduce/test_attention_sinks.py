"""Where attention goes, against Transformers' own attention and cache; how prefixes begin; and the recipe."""

from types import SimpleNamespace

import pytest
import tiny
import torch
import trained_decoder as tools

import tunescope as ts
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipes import _prefix_starts, _short_runs
from tunescope.reproduce.recipes import attention_sinks as recipe
from tunescope.reproduce.recipes._prefix_starts import STARTS, begun
from tunescope.reproduce.recipes._sinks import destinations, sinks
from tunescope.reproduce.run import reproduce
from tunescope.trial.demos import start
from tunescope.trial.train import loop

TEXTS = torch.cat([tools.text(12, seed) for seed in (1, 2)])


def test_sinks_are_read_off_transformers_own_attention_and_cache():
    model = tools.llama()
    found = sinks(model, TEXTS.tolist())
    attention = [tools.their_attention(model, one[None]) for one in TEXTS]
    keys = [tools.their_keys(model, one[None]) for one in TEXTS]
    for layer in range(3):
        weights = torch.stack([one[layer] for one in attention])[:, :, 8:]  # (texts, heads, queries, keys)
        assert found["on_first"][layer] == pytest.approx(weights[..., 0].mean((0, 2)).tolist(), rel=1e-4)
        assert found["on_second"][layer] == pytest.approx(float(weights[..., 1].mean()), rel=1e-4)
        for name, which in (("key_norm", 0), ("value_norm", 1)):
            length = torch.stack([one[layer][which] for one in keys]).norm(dim=-1)
            assert found[name][layer] == pytest.approx(float(length[..., 0].mean() / length[..., 1:].mean()), rel=1e-4)
        size = torch.stack([one[layer][0][:, 1:] for one in keys]).pow(2).mean((0, 2)).sqrt()
        outlier = max(float(one.max() / one.sort().values[3]) for one in size)  # the lower median of eight
        assert found["key_outlier"][layer] == pytest.approx(outlier, rel=1e-4)


def test_destinations_are_read_off_transformers_own_attention_with_the_prefix_in_its_cache():
    model = tools.llama()
    with ts.attach(model, ts.Prefix(length=5, positions="after")) as tuned:
        found, tensors = destinations(model, TEXTS.tolist(), 5), tuned.artifacts[0].tensors
    attention = [tools.their_attention(model, one[None], tensors) for one in TEXTS]
    at = torch.stack([torch.stack(one) for one in attention])[..., 8:, :].mean((0, 2, 3))  # (layers, keys)
    assert found["positions"] == pytest.approx(at[:, :5].mean(0).tolist(), rel=1e-4)
    assert found["first"] == pytest.approx(float(at[:, 5].mean()), rel=1e-4)
    for got, want in zip(found["by_layer"], at, strict=True):
        assert got == pytest.approx([float(want[:5].sum()), float(want[0]), float(want[5])], rel=1e-4)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    model, rows = tools.write(tmp_path_factory.mktemp("model"))
    settings = recipe.settings(Ask("attention-sinks", quick=True, model=model, data=rows, template="{text}:"))
    return _short_runs.bench_of(settings)


def test_a_prefix_that_begins_as_words_has_transformers_own_keys_and_values_of_them(bench):
    eager = tools.llama(torch.float32)
    ids = torch.tensor([bench.tokenizer(start.text(bench, 7, 3), add_special_tokens=False)["input_ids"][-7:]])
    for name, read, left_out in (("demonstrations", ids[:, 1:], 0), ("demonstrations without a sink", ids, 1)):
        made = begun(bench, name, 6, seed=3)
        assert made.spec.positions == "after"
        for layer, theirs in enumerate(tools.their_keys(eager, read)):
            for which, want in zip(("key", "value"), theirs, strict=True):
                got = made.tensors[f"decoder.{layer}.self.{which}"]
                torch.testing.assert_close(got, want[:, left_out:], rtol=0, atol=1e-5)


def test_noise_has_the_spread_that_its_name_says(bench):
    """Of many positions: all dimensions' together, or each its own; with a sink the first position is no noise."""
    plain, own, behind = (begun(bench, name, 4000, seed=0).tensors for name in list(STARTS)[:3])
    for name, one in plain.items():
        spread, spreads = one.std(), own[name].std(1)
        assert one.std(1).div(spread).sub(1).abs().max() < 0.1  # one for all
        assert spreads.max() / spreads.min() > 1.5
        assert own[name].mean(1).abs().max() > 5 * one.mean(1).abs().max()
        torch.testing.assert_close(behind[name][:, 1:], one[:, 1:], rtol=0, atol=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ids = torch.randint(258, (1, 64))
    for layer, (key, value) in enumerate(tools.their_keys(tools.llama(torch.float32), ids)):
        for which, want in (("key", key), ("value", value)):
            got = behind[f"decoder.{layer}.self.{which}"][:, 0]
            torch.testing.assert_close(got, want[:, 0], rtol=0, atol=1e-5)


def test_every_start_has_one_shape_and_is_drawn_by_its_seed(bench):
    shapes = {name: one.shape for name, one in begun(bench, "zeros", 6, 0).tensors.items()}
    for name in recipe.STARTS:
        first, again, other = (begun(bench, name, 6, seed).tensors for seed in (0, 0, 1))
        assert {key: one.shape for key, one in first.items()} == shapes
        assert all(torch.equal(first[key], again[key]) for key in shapes)
        assert name == "zeros" or not any(torch.equal(first[key], other[key]) for key in shapes)
    assert list(recipe.STARTS) == list(STARTS)


def test_where_positions_are_learned_the_text_keeps_its_own(tmp_path):
    import tinyrun

    model, data = tinyrun.write(tmp_path)
    bench = _short_runs.bench_of(recipe.settings(Ask("attention-sinks", quick=True, model=model, data=data["train"])))
    assert begun(bench, "zeros", 4, 0).spec.positions == "same"


def test_the_recipe_runs_on_any_decoder_and_its_cells_are_what_was_measured(tmp_path, in_process):
    for index, (model, rows) in enumerate(tools.both_models(tmp_path)):
        ask = Ask("attention-sinks", quick=True, model=model, data=rows, template="{text}:")
        result = reproduce(ask, tmp_path / f"run-{index}", 1, lambda line: None)
        columns = result["table"]["columns"]
        rows_of = {row["label"]: dict(zip(columns, row["cells"], strict=True)) for row in result["table"]["rows"]}
        pieces = {one["unit"]["start"]: one["outcome"] for one in result["units"]}
        assert list(rows_of) == list(pieces) == ["nothing attached", *recipe.STARTS]
        zeros, bare = pieces["zeros"], pieces["nothing attached"]
        assert rows_of["zeros"]["accuracy, 2 steps"]["values"] == [zeros["asked"][1]["accuracy"]]
        assert rows_of["zeros"]["loss on prose, 4 steps"]["values"] == [zeros["asked"][2]["prose"]]
        assert rows_of["zeros"]["on the prefix, 4 steps"]["mean"] == pytest.approx(sum(zeros["after"]["positions"]))
        usual = [share for layer in bare["sinks"]["as usual"]["on_first"] for share in layer]
        on_first = rows_of["nothing attached"]["on the text's first token, begun"]["mean"]
        assert on_first == pytest.approx(sum(usual) / len(usual), rel=1e-3)
        assert rows_of["nothing attached"]["accuracy, 2 steps"]["values"] == []
        assert f"{on_first:.3f} of attention is on the first token" in result["table"]["notes"][0]
        assert ("The same behind the token that begins a text" in result["table"]["notes"][1]) == (index == 0)
        drawn = [(tmp_path / f"run-{index}" / f"{name}.svg").read_text() for name in ("begun", "trained")]
        assert [f"{one}, rest of the prefix" in drawn[1] for one in ("zeros", "nothing attached")] == [True, False]
        assert f"nothing attached, text, first token: {on_first:.3f}" in drawn[0]


def test_the_table_of_some_pieces_leaves_the_others_empty():
    settings = {"every": 2, "steps": 4, "rows": 3, "batch_size": 4, "starts": ["noise", "zeros"]}
    seen = {"positions": [0.25, 0.5], "first": 0.125, "by_layer": []}
    asked = {"accuracy": 1.0, "loss": 2.0, "prose": 3.0}
    outcome = {"asked": [asked] * 3, "before": seen, "after": seen}
    table = recipe.table(settings, [({"start": "zeros", "seed": 0}, outcome)])
    assert [bool(cells[0].values) for _, cells in table.rows] == [False, False, True]
    assert "zeros, rest of the prefix: 0.500" in table.pictures["begun.svg"]
    assert "zeros, rest of the text: 0.125" in table.pictures["trained.svg"]
    assert list(table.pictures) == ["begun.svg", "trained.svg"]


def test_the_loss_on_prose_is_transformers_own(bench, tmp_path):
    prose = _short_runs.prose(bench, 16, 2)
    with tiny.Float64(), torch.no_grad():
        losses = [float(bench.model(torch.tensor([one]), labels=torch.tensor([one])).loss) for one in prose]
    settings = recipe.settings(
        Ask("attention-sinks", quick=True, model=bench.plan.model, data=bench.plan.data["train"])
    )
    found = recipe.work(settings, {"start": recipe.BARE, "seed": 0})
    assert found["asked"][0]["prose"] == pytest.approx(sum(losses) / 2, rel=1e-4)


def test_it_needs_a_model_and_rows():
    with pytest.raises(ts.UserError, match=r"attention-sinks looks into a decoder .* needs both"):
        recipe.settings(Ask("attention-sinks", model="m"))


def test_rows_that_are_asked_are_the_first_of_the_test_part(bench):
    rows = _short_runs.tested_rows(bench, 5, in_front=0)
    told = [bench.tokenizer.decode(row.input_ids) for row in rows]
    tests, others = ([row["text"] for row in part] for part in (bench.splits.test, bench.splits.dev))
    assert len(told) == 5 and all(text in one for text, one in zip(tests, told, strict=False))
    assert not any(text in one for text, one in zip(others, told, strict=False))


def test_a_start_and_what_trains_it_are_drawn_by_the_seed_of_the_piece(bench, monkeypatch):
    seeds = []

    def trained(problem, how, seed):
        seeds.append((seed, torch.initial_seed()))
        return SimpleNamespace(curve=[])

    def begins(bench, name, length, seed):
        seeds.append((name, seed))
        raise ts.UserError("enough")

    monkeypatch.setattr(loop, "train", trained)
    entered, train = _short_runs.short_run(bench, "prefix:length=4,init_from=zero", None, 0.1, 7)
    with entered as tuned:
        train(tuned, lambda: None)
    monkeypatch.setattr(_prefix_starts, "begun", begins)
    ask = Ask("attention-sinks", quick=True, model=bench.plan.model, data=bench.plan.data["train"])
    with pytest.raises(ts.UserError, match="enough"):
        recipe.work(recipe.settings(ask), {"start": "noise", "seed": 3})
    assert seeds == [(7, 7), ("noise", 3)]
