"""What a prefix does in depth, against Transformers' own attention with the prefix in its cache; and the recipe."""

import math

import pytest
import torch
import trained_decoder as tools

import tunescope as ts
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipes import _short_runs
from tunescope.reproduce.recipes import prefix_in_depth as recipe
from tunescope.reproduce.recipes._depth import by_layer, by_length
from tunescope.reproduce.run import reproduce


@pytest.fixture(scope="module")
def behind():
    """(model, prefix, ids, attention bare, attention with the prefix), the last two of Transformers."""
    model, ids = tools.llama(), tools.text(16)
    with ts.attach(model, ts.Prefix(length=5, positions="after"), seed=3) as tuned:
        artifact = tuned.artifacts[0]
    return (
        model,
        artifact,
        ids,
        tools.their_attention(model, ids),
        tools.their_attention(model, ids, artifact.tensors),
    )


def moved(bare, tuned, first=0):
    """Half the sum of absolute differences over the text's keys, each pattern summing to 1."""
    before, after = bare[..., first:], tuned[..., tuned.shape[-1] - bare.shape[-1] + first :]
    before, after = (one / one.sum(-1, keepdim=True) for one in (before, after))
    return (before - after).abs().sum(-1) / 2


def test_each_layer_is_measured_as_in_transformers_own_attention_with_the_prefix_in_its_cache(behind):
    model, artifact, ids, bare, theirs = behind
    with ts.attach(model, artifact) as tuned:
        found = by_layer(model, tuned, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    for layer, (got, before, after) in enumerate(zip(found, bare, theirs, strict=True)):
        assert got["share"] == pytest.approx(float(after[..., :5].sum(-1).mean()), rel=1e-4)
        assert got["along"] == pytest.approx(float(moved(before, after).mean()), rel=1e-4, abs=1e-14)
        assert got["along_behind_first"] == pytest.approx(
            float(moved(before, after, 1)[:, 1:].mean()), rel=1e-4, abs=1e-14
        )
        assert (got["along"] > 1e-3) == (layer > 0)
        value = artifact.tensors[f"decoder.{layer}.self.value"].repeat_interleave(2, 0)
        bias = after[..., :5] @ value
        assert got["bias_by_content"] > 0 and bias.shape == (4, 16, 8)


def test_by_itself_a_prefix_moves_nothing_in_any_layer_and_lora_does():
    model, ids = tools.llama(), tools.text(16)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with ts.attach(model, ts.Prefix(length=5)) as tuned:
        prefix = by_layer(model, tuned, batch)
    assert max(layer["held_most"] for layer in prefix) < 1e-14
    with ts.attach(model, ts.LoRA(rank=1)) as tuned:
        for name, value in tuned.named_parameters().items():
            if name.endswith(":b"):
                torch.nn.init.normal_(value)
        lora = by_layer(model, tuned, batch)
    assert min(layer["held"] for layer in lora) > 1e-3
    assert all("share" not in layer and "bias_by_content" not in layer for layer in lora)


def test_the_bias_is_measured_by_what_the_text_adds(behind):
    """In the first layer the text's own values are those of the bare model: the formula on them."""
    model, artifact, ids, _, theirs = behind
    with ts.attach(model, artifact) as tuned:
        found = by_layer(model, tuned, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    value = tools.their_keys(model, ids)[0][1].repeat_interleave(2, 0)
    bias = theirs[0][..., :5] @ artifact.tensors["decoder.0.self.value"].repeat_interleave(2, 0)
    content = theirs[0][..., 5:] @ value
    assert found[0]["bias_by_content"] == pytest.approx(float(bias.norm() / content.norm()), rel=1e-4)


def test_a_long_text_holds_its_shorter_ones(behind):
    """At n tokens: the last eighth of the queries of a text that ends there, run alone by Transformers."""
    model, artifact, ids, *_ = behind
    with ts.attach(model, artifact) as tuned:
        found = by_length(model, tuned, ids.tolist(), (8, 16))
    for length, queries in ((8, slice(7, 8)), (16, slice(14, 16))):
        short = ids[:, :length]
        bare, theirs = tools.their_attention(model, short), tools.their_attention(model, short, artifact.tensors)
        for layer, (before, after) in enumerate(zip(bare, theirs, strict=True)):
            share = after[:, queries, :5].sum(-1)
            got = {name: of[layer] for name, of in found[str(length)].items()}
            assert got["share"] == pytest.approx(float(share.mean()), rel=1e-4)
            assert got["log_odds"] == pytest.approx(float(torch.logit(share).mean()), rel=1e-4)
            apart = moved(before[:, queries], after[:, queries])
            assert got["along"] == pytest.approx(float(apart.mean()), rel=1e-4, abs=1e-7)  # of weights in float32


@pytest.mark.parametrize("power", [0.0, -1.0, -0.25])
def test_the_slope_is_the_power_of_the_length_in_the_odds(power):
    odds = {n: 3.0 * n**power for n in (8, 16, 64)}
    found = {"lengths": {str(n): {"log_odds": [math.log(one), math.log(7 * one)]} for n, one in odds.items()}}
    assert recipe._slope(found) == pytest.approx(power, abs=1e-9)


def test_the_recipe_runs_on_any_decoder_and_its_cells_are_what_was_measured(tmp_path, in_process):
    for index, (model, rows) in enumerate(tools.both_models(tmp_path)):
        ask = Ask("prefix-in-depth", quick=True, model=model, data=rows, template="{text}:")
        result = reproduce(ask, tmp_path / f"run-{index}", 1, lambda line: None)
        cells = {row["label"]: row["cells"] for row in result["table"]["rows"]}
        pieces = {one["unit"]["arm"]: one["outcome"] for one in result["units"]}
        assert list(pieces) == ["nothing attached", *recipe.ARMS]
        *_, lora, bare = (one["values"] for one in cells["accuracy"])
        assert bare == [pieces["nothing attached"]["answers"]["alone"]["accuracy"]]
        assert lora == [pieces["LoRA"]["answers"]["alone"]["accuracy"]]
        shares = [layer["share"] for layer in pieces["prefix begun as noise"]["layers"]]
        assert cells["share, every layer"][1]["values"] == [pytest.approx(sum(shares) / len(shares))]
        assert cells["share, every layer"][2]["values"] == cells["share, every layer"][3]["values"] == []
        assert cells["moved by itself, most at one query of a head"][0]["mean"] < 1e-12
        assert cells["moved in depth, every layer, before training"][2]["values"] == [0.0]
        drawn = (tmp_path / f"run-{index}" / "share-by-length.svg").read_text()
        from_8, to_32 = (cells[f"share at {n} tokens"][1]["mean"] for n in (8, 32))
        assert f"from noise: from {from_8:.3f} to {to_32:.3f}" in drawn and "LoRA" not in drawn


def test_prose_stands_behind_what_begins_a_text_and_nothing_else_changes(tmp_path):
    model, rows = tools.write(tmp_path)
    bench = _short_runs.bench_of(recipe.settings(Ask("prefix-in-depth", quick=True, model=model, data=rows)))
    alone, behind = (_short_runs.tested_rows(bench, 4, in_front=n) for n in (0, 8))
    text = bench.tokenizer.decode([token for row in _short_runs.prose(bench, 8)[:4] for token in row])
    assert len(text) == 32 and text.isascii()
    for index, (before, after) in enumerate(zip(alone, behind, strict=True)):
        assert after.input_ids == (*_short_runs.prose(bench, 8)[index], *before.input_ids)
        assert (after.label, after.target_ids) == (before.label, before.target_ids)


def test_accuracy_and_loss_are_those_of_the_right_words_in_transformers_own_logits(tmp_path):
    model, rows = tools.write(tmp_path)
    bench = _short_runs.bench_of(recipe.settings(Ask("prefix-in-depth", quick=True, model=model, data=rows)))
    asked = _short_runs.tested_rows(bench, 5, in_front=0)
    losses, right = [], 0
    for row in asked:
        scores = {}
        for label, word in bench.task.word_ids(bench.tokenizer, "decoder").items():
            with torch.no_grad():
                logits = bench.model(torch.tensor([[*row.input_ids, *word]])).logits[0].log_softmax(-1)
            at = range(len(row.input_ids) - 1, len(row.input_ids) + len(word) - 1)
            scores[label] = sum(float(logits[i, token]) for i, token in zip(at, word, strict=True))
        losses.append(-scores[row.references[0]])
        right += max(scores, key=scores.get) == row.references[0]
    got = _short_runs.answers(bench, asked)
    assert got["accuracy"] == right / 5
    assert got["loss"] == pytest.approx(sum(losses) / 5, rel=1e-4)


def test_what_is_kept_is_what_the_last_step_left_and_not_what_scored_best(tmp_path):
    model, rows = tools.write(tmp_path)
    settings = recipe.settings(Ask("prefix-in-depth", quick=True, model=model, data=rows)) | {"every": 2}
    bench = _short_runs.bench_of(settings)
    entered, train = _short_runs.short_run(bench, "prefix:length=3,init_from=noise", None, 1e-2, 0)
    seen = []
    with entered as tuned:
        curve = train(tuned, lambda: seen.append([one.clone() for one in tuned.parameters()]))
        assert all(map(torch.equal, tuned.parameters(), seen[-1])) and len(seen) == 2
        assert not all(map(torch.equal, seen[0], seen[1]))
    assert [point["step"] for point in curve] == [2, 4]


def test_the_table_of_some_pieces_has_what_is_known():
    settings = {"arms": recipe.ARMS, "lengths": [8], "prose": 8, "steps": 4, "batch_size": 4, "rows": 3}
    answers = {"alone": {"accuracy": 0.5}, "behind prose": {"accuracy": 0.25}}
    bare = recipe.table(settings, [({"arm": recipe.BARE, "seed": 0}, {"answers": answers})])
    assert [label for label, _ in bare.rows] == ["accuracy", "accuracy, 8 tokens of prose in front"]
    assert not bare.pictures
    layer = {"held": 0.5, "held_most": 1.0, "along": 0.25, "along_behind_first": 0.125}
    outcome = {"answers": answers, "layers": [layer], "before": [layer], "lengths": {"8": {"along": [0.5]}}}
    lora = recipe.table(settings, [({"arm": "LoRA", "seed": 0}, outcome)])
    assert dict(lora.rows)["moved in depth, second layer"][2].values == (0.25,)
    assert "share, every layer" not in dict(lora.rows) and list(lora.pictures) == ["moved-by-layer.svg"]


@pytest.mark.parametrize("given", [{}, {"model": "m"}, {"data": "d"}])
def test_it_needs_a_model_and_rows(given):
    with pytest.raises(ts.UserError, match=r"needs both. Type: tunescope reproduce prefix-in-depth --model MODEL --da"):
        recipe.settings(Ask("prefix-in-depth", **given))


def test_a_tokenizer_that_knows_no_english_is_refused(tmp_path):
    import tinyrun

    model, data = tinyrun.write(tmp_path)
    bench = _short_runs.bench_of(recipe.settings(Ask("prefix-in-depth", quick=True, model=model, data=data["train"])))
    with pytest.raises(ts.UserError, match=r"reads English prose to .*, and the tokenizer knows \d+%"):
        _short_runs.prose(bench, 8)


def test_what_was_there_before_training_is_read_of_the_untrained_prefix():
    before, after = ([{"share": share, "along": share / 2} for share in two] for two in ((0.2, 0.4), (0.6, 0.8)))
    read = {label: how for label, _, how in recipe._of_layers()}
    for name, first, last in (("share", 0.3, 0.7), ("moved in depth", 0.15, 0.35)):
        labels = (f"{name}, every layer, before training", f"{name}, every layer")
        assert [read[one]({"before": before, "layers": after}) for one in labels] == pytest.approx([first, last])


def test_each_arm_is_trained_at_its_method_s_rate_by_the_seed_of_its_piece(tmp_path, monkeypatch):
    model, rows = tools.write(tmp_path)
    settings, asked = (
        recipe.settings(Ask("prefix-in-depth", quick=True, model=model, data=rows, template="{text}:")),
        [],
    )

    def short_run(bench, arm, what, rate, seed):
        asked.append((arm, rate, seed))
        raise ts.UserError("enough")

    monkeypatch.setattr(_short_runs, "short_run", short_run)
    for arm in recipe.ARMS:
        with pytest.raises(ts.UserError, match="enough"):
            recipe.work(settings, {"arm": arm, "seed": 5})
    rates = [settings["rates"][method] for method in ("prefix", "prefix", "lora")]
    assert asked == [(arm, rate, 5) for arm, rate in zip(recipe.ARMS.values(), rates, strict=True)]
    assert rates[0] != rates[-1]
