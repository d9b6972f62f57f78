"""How far attention over the content moved: nowhere in a prefix's own layer, somewhere under LoRA, never one number."""

import pytest
import tiny
import torch
from probe_tools import FAMILIES
from unlisted import unlisted
from zoo import inputs, zoo

import tunescope as ts
from tunescope.probes import mechanism as looking
from tunescope.probes.looks.pattern import between, pattern
from tunescope.probes.mechanism import mechanism
from tunescope.probes.see import see

DECODERS = [family for family in FAMILIES if tiny.is_decoder(tiny.make(family))]


def test_total_variation_is_the_most_that_any_set_of_keys_gains():
    """Its definition: the largest difference in probability over all subsets of keys, tried one by one."""
    g = torch.Generator().manual_seed(0)
    before, after = (torch.rand(2, 3, 5, 7, generator=g, dtype=torch.float64) for _ in range(2))
    got = pattern(before, after)
    difference = after / after.sum(-1, keepdim=True) - before / before.sum(-1, keepdim=True)
    sets = torch.tensor([[i >> k & 1 for k in range(7)] for i in range(2**7)], dtype=torch.float64)
    torch.testing.assert_close(got.total_variation, (difference @ sets.T).amax(-1), rtol=0, atol=1e-12)
    torch.testing.assert_close(got.largest, difference.abs().max(-1).values, rtol=0, atol=0)
    assert got.total_variation.shape == got.largest.shape == (2, 3, 5)


def test_it_does_not_depend_on_what_the_patterns_sum_to_and_is_undefined_for_none():
    before = torch.tensor([[[[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]]]])
    got = pattern(before, before * 0.01)
    assert got.total_variation[0, 0, 0] == 0
    assert got.total_variation[0, 0, 1].isnan()
    assert pattern(before, before.flip(-1)).total_variation[0, 0, 0] == 0.25


@pytest.mark.parametrize("family", FAMILIES)
def test_held_a_prefix_moves_nothing_in_any_layer_and_along_depth_it_does(family):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, "prefix:length=3"), tiny.batch(model))
    for name, layer in seen.held.items():
        still = layer.at_real(between(seen.bare[name], layer).total_variation)
        moved = layer.at_real(between(seen.bare[name], seen.along[name]).total_variation)
        assert still.max() <= 1e-12, name
        assert (moved.max() > 1e-4) == (not name.endswith(".0.self")), name
    assert len(seen.held) == (6 if model.config.is_encoder_decoder else 2)


@pytest.mark.parametrize(
    "arm", ["soft:length=3", "text:text=w5 w6", "prefix:length=2,positions=after", "infix:length=2"]
)
@pytest.mark.parametrize("family", DECODERS)
def test_contexts_that_shift_the_text_move_nothing_either_once_positions_are_held(family, arm):
    model = tiny.make(family)
    seen = see(model, tiny.away(model, arm), tiny.batch(model))
    for name, layer in seen.held.items():
        assert layer.at_real(between(seen.bare[name], layer).total_variation).max() <= 1e-12, name


ROTARY = ["modernbert", "eurobert", "nomic_bert", "t5gemma"]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "t5", "bart", "mbart", *ROTARY])
def test_a_token_context_in_an_encoder_moves_nothing_held_or_says_why_it_cannot_be_said(family):
    model = zoo(family) if family in ROTARY else tiny.make(family)
    batch = tiny.batch(model)
    seen = see(model, tiny.away(model, "soft:length=3"), batch)
    if family in ("bart", "mbart"):
        assert "counts its own positions" in seen.no_bare
        assert seen.held == {}
        found = mechanism(model, tiny.away(model, "soft:length=3"), batch)
        assert (found["content_pattern_shift"], found["by_layer"][0]["along"]) == (None, None)
        assert found["context_share"] > 0
        return
    assert seen.held.keys() == seen.bare.keys() != set()
    for name, layer in seen.held.items():
        assert layer.at_real(between(seen.bare[name], layer).total_variation).max() <= 1e-12, name


@pytest.mark.parametrize("family", FAMILIES)
def test_held_lora_on_the_queries_moves_the_pattern_of_every_layer_and_on_the_values_of_none(family):
    model = tiny.make(family)
    batch = tiny.batch(model)
    queries, values = (
        see(model, tiny.away(model, f"prefix:length=2+lora:rank=2,sites={sites}"), batch)
        for sites in ("attn.q", "attn.v")
    )
    for name, layer in queries.held.items():
        assert layer.at_real(between(queries.bare[name], layer).total_variation).max() > 1e-4, name
        still = layer.at_real(between(values.bare[name], values.held[name]).total_variation)
        assert still.max() <= 1e-12, name


@pytest.mark.parametrize("arm", ["lora:rank=2,sites=attn.q,attn.k", "full", "bias", "adapter:bottleneck=2"])
def test_in_the_first_layer_held_and_along_are_one_where_no_norm_stands_before_it(arm):
    """BERT's first attention reads the embeddings: without a change of those, its input is the same in both."""
    model = tiny.make("bert")
    artifacts = tiny.away(model, arm)
    for artifact in artifacts:
        artifact.tensors = {key: value * ("embeddings" not in key) for key, value in artifact.tensors.items()}
    seen = see(model, artifacts, tiny.batch(model))
    first, second = (seen.along[name] for name in seen.along)
    held = first.at_real(between(seen.bare["encoder.0.self"], seen.held["encoder.0.self"]).total_variation)
    along = first.at_real(between(seen.bare["encoder.0.self"], first).total_variation)
    torch.testing.assert_close(held, along, rtol=0, atol=1e-12)
    assert (held.max() > 1e-4) == ("adapter" not in arm)
    moved = second.at_real(between(seen.bare["encoder.1.self"], second).total_variation)
    assert moved.max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_mechanism_tells_what_a_context_and_what_weights_did(family):
    model = tiny.make(family)
    batch = tiny.batch(model)
    prefix, lora, both, full, nothing = (
        mechanism(model, tiny.away(model, arm) if arm else (), batch)
        for arm in ("prefix:length=3", "lora:rank=2", "prefix:length=3+lora:rank=2", "full", "")
    )
    assert prefix["content_pattern_shift"] <= 1e-12 < 1e-4 < lora["content_pattern_shift"]
    assert full["content_pattern_shift"] > 1e-4 < both["content_pattern_shift"]
    assert nothing["content_pattern_shift"] <= 1e-12
    assert 0 < prefix["context_share"] < 1 > both["context_share"] > 0
    assert lora["context_share"] is full["context_share"] is nothing["context_share"] is None
    assert prefix["by_layer"][0]["layer"].endswith(".0.self")
    assert all(row["held"] <= row["held_max"] for row in lora["by_layer"])
    mean = sum(row["held"] for row in lora["by_layer"]) / len(lora["by_layer"])
    assert lora["content_pattern_shift"] == pytest.approx(mean)
    assert lora["reason"] == ""


def test_held_stays_exact_where_a_context_takes_all_but_a_float32_of_the_attention():
    model = tiny.make("gpt2", dtype=torch.float32)
    artifacts = tiny.away(model, "prefix:length=3", 1)
    for name, value in artifacts[0].tensors.items():
        artifacts[0].tensors[name] = value * (100 if name.endswith("key") else 1)
    found = mechanism(model, artifacts, tiny.batch(model))
    assert found["context_share"] > 0.8
    assert found["content_pattern_shift"] <= 1e-7  # some processors round a product by where its operands lie


def test_padding_does_not_count():
    model = tiny.make("gpt2")
    artifacts = tiny.away(model, "lora:rank=2")
    alone = mechanism(model, artifacts, {"input_ids": tiny.ids(1, 5)})
    for side in ("left", "right"):
        pads = torch.zeros(1, 3, dtype=torch.long)
        parts = [pads, tiny.ids(1, 5)] if side == "left" else [tiny.ids(1, 5), pads]
        ids = torch.cat(parts, 1)
        mask = (ids != 0).long()
        batch = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
        padded = mechanism(model, artifacts, batch)
        for got, expected in zip(padded["by_layer"], alone["by_layer"], strict=True):
            assert got["held"] == pytest.approx(expected["held"], abs=1e-12)
            assert got["along"] == pytest.approx(expected["along"], abs=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_rows_that_are_looked_at_one_by_one_have_the_numbers_of_all_at_once(family, monkeypatch):
    model = tiny.make(family)
    batch, artifacts = tiny.batch(model), tiny.away(model, "prefix:length=3+lora:rank=2")
    whole = mechanism(model, artifacts, batch)
    monkeypatch.setattr(looking, "ROOM", 1)
    passes = []
    monkeypatch.setattr(looking, "see", lambda *given: passes.append(given) or see(*given))
    one_by_one = mechanism(model, artifacts, batch)
    assert len(passes) == len(batch["input_ids"]) > 1
    for got, expected in zip(one_by_one["by_layer"], whole["by_layer"], strict=True):
        assert got == pytest.approx(expected, abs=1e-12)
    assert one_by_one["content_pattern_shift"] == pytest.approx(whole["content_pattern_shift"], abs=1e-12)
    assert one_by_one["context_share"] == pytest.approx(whole["context_share"], abs=1e-12)


def test_each_row_keeps_the_place_where_its_output_starts(monkeypatch):
    model = tiny.make("gpt2")
    batch, artifacts = tiny.batch(model), tiny.away(model, "infix:length=2")
    batch = batch | {"output_start": torch.arange(len(batch["input_ids"])) + 2}
    whole = mechanism(model, artifacts, batch)
    monkeypatch.setattr(looking, "ROOM", 1)
    assert mechanism(model, artifacts, batch)["context_share"] == pytest.approx(whole["context_share"], abs=1e-12)


def test_a_row_s_attention_is_counted_by_hand():
    model = tiny.make("gpt2")  # scores and weights in float32 and weights in float64, of three runs
    heads = model.config.n_layer * model.config.n_head
    assert looking.bytes_of(model, 100) == 3 * (4 + 4 + 8) * heads * 100 * 100


def test_it_works_on_what_is_attached_and_leaves_it_attached_and_training():
    model = tiny.make("t5")
    batch = tiny.batch(model)
    artifacts = tiny.away(model, "prefix:length=3+lora:rank=2")
    expected = mechanism(model, artifacts, batch)
    with ts.attach(model, *artifacts) as tuned:
        tuned.train()
        model.train()
        assert mechanism(model, tuned, batch) == expected
        assert tuned.training and model.training
        assert all(value.requires_grad for value in tuned.parameters())
        tiny.output(model, batch).square().mean().backward()
        assert all(value.grad is not None for value in tuned.parameters())
    model.eval()
    assert mechanism(model, tuned, batch) == expected  # detached: attached for the time being


def test_what_changed_since_the_last_run_is_seen():
    model = tiny.make("llama")
    batch = tiny.batch(model)
    with ts.attach(model, *tiny.away(model, "prefix:length=3+full")) as tuned, torch.no_grad():
        before = mechanism(model, tuned, batch)
        for value in tuned.parameters():
            value.mul_(0)
        after = mechanism(model, tuned, batch)
    assert before["content_pattern_shift"] > 1e-4
    assert after["content_pattern_shift"] <= 1e-12
    assert after["context_share"] != before["context_share"]


def test_a_family_that_is_not_reached_has_no_numbers_and_a_reason():
    model = unlisted("gpt_neox_japanese")
    found = mechanism(model, (ts.Full(),), {"input_ids": tiny.ids()})
    assert (found["content_pattern_shift"], found["context_share"], found["by_layer"]) == (None, None, [])
    assert "'gpt_neox_japanese' computes attention by itself" in found["reason"]
    with pytest.raises(ts.UserError, match="'gpt_neox_japanese' computes attention by itself"):
        see(model, (ts.Full(),), {"input_ids": tiny.ids()})


def test_an_exception_inside_leaves_the_model_attached_as_it_was():
    model = tiny.make("gpt2")
    batch = tiny.batch(model)
    with ts.attach(model, *tiny.away(model, "prefix:length=3")) as tuned, torch.no_grad():
        expected = model(**batch).logits
        with pytest.raises(IndexError):
            mechanism(model, tuned, {"input_ids": torch.full((1, 3), 999)})
        assert torch.equal(model(**batch).logits, expected)


def test_a_prefix_that_moves_an_encoder_s_text_stands_beside_its_tokens_and_not_among_them():
    """A word's prefix takes positions where they are rotary: more of them here than the text has tokens."""
    model = zoo("modernbert")
    given = inputs("modernbert", model, "right")
    seen = see(model, tiny.away(model, "prefix:length=9,positions=after"), given)
    for name, layer in seen.held.items():
        assert layer.weights.shape[2] == given["input_ids"].shape[1]
        assert layer.at_real(between(seen.bare[name], layer).total_variation).max() <= 1e-12, name
