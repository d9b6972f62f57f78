"""Counts of real specs against the formulas of He et al. written out, on models without weights."""

import json

import pytest
import tiny

import tunescope as ts
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipes import unified_counts as recipe
from tunescope.reproduce.recipes._configs import model_label, without_weights
from tunescope.reproduce.run import reproduce

SHAPES = {"BART-large": (1024, 12, 3, 2), "RoBERTa-base": (768, 12, 1, 1), "GPT-2 medium": (1024, 24, 1, 1)}


@pytest.fixture(scope="module")
def counted():
    settings = recipe.settings(Ask("unified-counts"))
    assert json.loads(json.dumps(settings)) == settings
    return {unit["model"]: recipe.work(settings, unit) for unit in recipe.units(settings)}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_stored_is_what_the_paper_s_formulas_say_and_biases(counted, shape):
    d, depth, attentions, blocks = SHAPES[shape]  # attention modules and feed-forwards a layer, over both stacks
    at, ff = depth * attentions, depth * blocks
    stored = {label: one["stored"] for label, one in counted[shape]["counts"].items()}
    assert stored == {
        "prefix 200, with its network": 2 * 200 * d * at,
        "prefix 30, with its network": 2 * 30 * d * at,
        "prefix 200, trained directly": 2 * 200 * d * at,
        "sequential adapter, attn, 200": 2 * 200 * d * at + (200 + d) * at,
        "parallel adapter, attn, 200": 2 * 200 * d * at + (200 + d) * at,
        "multi-head parallel adapter, 200": 2 * 200 * d * at,
        "sequential adapter, ffn, 200": 2 * 200 * d * ff + (200 + d) * ff,
        "parallel adapter, ffn, 200": 2 * 200 * d * ff + (200 + d) * ff,
        "parallel adapter, ffn, 512": 2 * 512 * d * ff + (512 + d) * ff,
        "parallel adapter, ffn, 600": 2 * 600 * d * ff + (600 + d) * ff,
        "parallel adapter, ffn, 1024": 2 * 1024 * d * ff + (1024 + d) * ff,
        "LoRA, attn, 200": 4 * 200 * d * at,
        "LoRA, ffn, 102": 10 * 102 * d * ff,
        "prefix 30 + LoRA, ffn, 102": 2 * 30 * d * at + 10 * 102 * d * ff,
        "MAM: prefix 30 + parallel, ffn, 512": 2 * 30 * d * at + 2 * 512 * d * ff + (512 + d) * ff,
        "MAM for GLUE: prefix 16 + parallel, ffn, 16": 2 * 16 * d * at + 2 * 16 * d * ff + (16 + d) * ff,
        "BitFit": BIASES[shape],
        "prompt tuning, 200": 200 * d,
        "full fine-tuning": counted[shape]["total"] - (d * d + d if shape == "RoBERTa-base" else 0),  # its pooler
    }


BIASES = {  # of attention (4 maps), feed-forward and norms, a layer; and of the norms around the stacks
    "BART-large": 36 * 4 * 1024 + 24 * (4096 + 1024) + (36 + 24) * 1024 + 2 * 1024,
    "RoBERTa-base": 12 * (4 * 768 + 3072 + 768 + 2 * 768) + 768,
    "GPT-2 medium": 24 * (4 * 1024 + 4096 + 1024 + 2 * 1024) + 1024,
}


def test_the_shares_of_bart_large_are_the_published_ones_but_for_one(counted):
    total = counted["BART-large"]["total"]
    assert round(total / 1e6, 1) == 406.3
    for row in recipe.ROWS:
        got = 100 * counted["BART-large"]["counts"][row.label]["stored"] / total
        if row.share:
            assert got == pytest.approx(float(row.share), abs=0.016), row.label  # biases: 0.01 points
        if row.printed:
            agrees = abs(got - float(row.printed)) < 0.1  # the paper's one decimal
            assert agrees == (row.label != "LoRA, ffn, 102"), row.label


def test_trained_stored_and_live_are_told_apart(counted):
    bart, gpt2 = counted["BART-large"]["counts"], counted["GPT-2 medium"]["counts"]
    for length in (30, 200):  # embedding, tanh layer, and one map to all layers, for each of three kinds of attention
        network = 3 * (length * 1024 + 1024 * 800 + 800 + 800 * 24 * 1024 + 24 * 1024)
        assert bart[f"prefix {length}, with its network"]["trained"] == network
        assert bart[f"prefix {length}, with its network"]["live"] == 2 * length * 1024 * 36
    assert {bart[label]["live"] for label in ("LoRA, ffn, 102", "BitFit", "full fine-tuning")} == {0}
    assert bart["prefix 30 + LoRA, ffn, 102"]["live"] == 2 * 30 * 1024 * 36
    assert bart["prompt tuning, 200"]["live"] == 200 * 1024
    assert gpt2["prompt tuning, 200"]["live"] == 2 * 200 * 1024 * 24  # kept as keys and values


@pytest.mark.parametrize("given", ["folder", "config.json"])
def test_any_model_is_counted_from_its_config_alone(given, tmp_path, in_process):
    config = tiny.configs()["llama"]
    config.save_pretrained(tmp_path / "small")
    name = str(tmp_path / "small") + ("" if given == "folder" else "/config.json")
    result = reproduce(Ask("unified-counts", model=name), tmp_path / "run", workers=1, say=lambda line: None)
    rows = {row["label"]: row["cells"] for row in result["table"]["rows"]}
    assert "small: 0.0 million" in rows
    assert rows["prefix 200, trained directly"][1]["text"] == f"{2 * 2 * 200 * 12:,}"  # two layers, two key heads of 6
    assert [cell["paper"] for cell in rows["prefix 200, trained directly"]] == [""] * 4
    assert rows["LoRA, attn, 200"][0]["text"] == rows["BitFit"][0]["text"] == "refused"
    notes = " ".join(result["table"]["notes"])
    assert "small, LoRA, attn, 200: LoRA(rank=200): a 24 -> 24 map takes a rank in [1, 24]" in notes
    assert "small, BitFit: Bias(): family 'llama' has no such parameter" in notes


@pytest.mark.parametrize("family", tiny.configs())
def test_a_model_without_weights_has_the_parameters_of_one_with_them(family):
    config = tiny.configs()[family]
    made = without_weights(json.loads(config.to_json_string()))
    assert all(parameter.is_meta for parameter in made.parameters())
    expected = {name: tuple(value.shape) for name, value in tiny.make(family).named_parameters()}
    assert {name: tuple(value.shape) for name, value in made.named_parameters()} == expected


def test_what_is_no_config_is_said_in_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no-such-family"}')
    for name in (str(tmp_path), str(tmp_path / "nowhere" / "config.json")):
        with pytest.raises(
            ts.UserError, match=r"no config that transformers knows: .* Give the folder of a model, its"
        ):
            recipe.settings(Ask("unified-counts", model=name))


def test_a_model_is_called_by_its_folder():
    assert [model_label(name) for name in ("a/small", "a/small/config.json", "org/name")] == ["small", "small", "name"]
