"""What sections read of a round, held against transformers and loops: label attention, an encoder-decoder's flow."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
import transformers
from anchor_tools import QUERIES, demonstrated
from apple import on_apple
from reference import anchors as literal
from zoo import zoo

import tunescope as ts
from tunescope.attachment.resumed_pass import plain_layers
from tunescope.models.anatomy import kind
from tunescope.probes.anchors.importance import importance
from tunescope.probes.anchors.loyalty import Queries
from tunescope.probes.anchors.prompts import Prompt, choices
from tunescope.probes.anchors.round import Round
from tunescope.probes.anchors.saliency import saliency
from tunescope.probes.demonstrations import auc, diagnose, flow, isolate
from tunescope.tasks.kinds.classification import Classification

# All words begin with w5, so the answer is read one token on.
TASK = Classification(template="w3 {text} w4", words={"a": "w5 w6", "b": "w5 w7 w9", "c": "w5 w8"})


def made(model: Any) -> Round:
    tokenizer, which = tiny.tokenizer(), kind(model)
    rows = TASK.encode(QUERIES, tokenizer, model_kind=which, behind="")
    told_apart = choices(TASK.word_ids(tokenizer, which))
    assert len(told_apart.lead) == 1
    prompts = [Prompt(demonstrated(seed, TASK), row) for seed, row in enumerate(rows)]
    return Round(model, tokenizer, told_apart, TASK.labels, prompts, seed=0)


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_attention_to_label_words_is_what_transformers_gives_where_the_answer_is_read(family):
    model = tiny.make(family, attention="eager")
    round = made(model)
    found = round.attended()
    for number, prompt in enumerate(round.prompts):
        ids = torch.tensor([prompt.ids])
        lead = torch.tensor([round.choices.lead])
        with torch.no_grad():
            if family == "t5":
                start = torch.tensor([[model.config.decoder_start_token_id]])
                given = {"input_ids": ids, "decoder_input_ids": torch.cat([start, lead], 1)}
                weights = model(**given, output_attentions=True).cross_attentions
            else:
                weights = model(torch.cat([ids, lead], 1), output_attentions=True).attentions
        for name, layer in zip(round.last, weights, strict=True):
            rows = [layer[0, :, -1, list(word)].sum(-1) for word in prompt.spans.labels]
            torch.testing.assert_close(found[name][number], torch.stack(rows, -1).double(), rtol=1e-6, atol=1e-9)


def test_a_class_has_the_attention_of_all_heads_to_all_its_words():
    round = made(tiny.make("gpt2"))
    weights = next(iter(round.attended().values()))
    found = auc._by_class(round, weights)
    for number, prompt in enumerate(round.prompts):
        for index, label in enumerate(round.labels):
            words = [n for n, name in enumerate(prompt.spans.names) if name == label]
            assert float(found[number, index]) == pytest.approx(float(weights[number][:, words].sum()), rel=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_the_flow_between_parts_does_not_depend_on_how_many_prompts_run_at_once(family):
    model = tiny.make(family)
    one, two = (flow.measure(replace(made(model), at_once=at_once)) for at_once in (1, 2))
    for layer, grid in one["between"].items():
        for mine, theirs in zip(grid, two["between"][layer], strict=True):
            assert mine == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("family", ["recurrent_gemma", "llama4_text", "rwkv"])
def test_prompts_of_a_family_that_reads_padding_as_text_run_with_their_like(family):
    """Lengths that go up and down, some of them twice; what is made of a batch is in the order of the prompts."""
    model, tokenizer = zoo(family), tiny.tokenizer()
    texts = [" ".join(f"w{10 + (7 * row + place) % 30}" for place in range(size)) for row, size in enumerate(LENGTHS)]
    asked = [{"text": text, "label": label} for text, label in zip(texts, "bcabca", strict=True)]
    rows = TASK.encode(asked, tokenizer, model_kind="decoder", behind="")
    told_apart = choices(TASK.word_ids(tokenizer, "decoder"))
    prompts = [Prompt(demonstrated(0, TASK), row) for row in rows]
    whole = Round(model, tokenizer, told_apart, TASK.labels, prompts, seed=0)
    queries = Queries(model, tokenizer, rows, told_apart)
    with torch.no_grad(), tiny.Float64():
        for found, given in ((whole.logits, [one.ids for one in prompts]), (queries.logits(), [*map(ids_of, rows)])):
            alone = [model(input_ids=torch.tensor([[*one, *told_apart.lead]])).logits[0, -1] for one in given]
            torch.testing.assert_close(found, torch.stack(alone), rtol=0, atol=1e-10)
    assert whole.read is None and 1 < len(whole.cut) == len({len(one.ids) for one in prompts}) < len(prompts)
    if family != "rwkv":  # it has no attention
        by_one = replace(whole, at_once=1)
        for measured in (Round.attended, diagnose._vectors, lambda one: isolate._cut(one, "label words", one.reading)):
            torch.testing.assert_close(measured(whole), measured(by_one), rtol=0, atol=1e-10)
        weighed = [importance(model, tokenizer, prompts, told_apart, at_once=size) for size in (8, 1)]
        torch.testing.assert_close(*weighed, rtol=1e-9, atol=0)
        assert flow.measure(whole)["saliency"][0] == pytest.approx(flow.measure(by_one)["saliency"][0], rel=1e-9)


LENGTHS = (12, 1, 5, 1, 12, 5)


def ids_of(row: Any) -> tuple[int, ...]:
    return row.input_ids


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_a_device_without_float64_gives_the_same(family):
    model = tiny.make(family, dtype=torch.float32)

    def read():
        round = made(model)
        prompts = [replace(one, spans=round.prompts[0].spans) for one in round.prompts]
        weighed = importance(model, round.tokenizer, prompts, round.choices) if family == "gpt2" else None
        flows = flow.measure(round)
        return round.attended(), flows["saliency"], flows["between"], diagnose._vectors(round), weighed

    expected = read()
    with on_apple(model):
        torch.testing.assert_close(read(), expected, rtol=0, atol=0)


def test_stacks_of_different_depth_are_refused():
    config = copy.deepcopy(tiny.make("bart").config)
    config.decoder_layers = 1
    model = tiny.build(transformers.AutoModelForSeq2SeqLM, config)
    with pytest.raises(ts.UserError, match="this model has 2 and 1"):
        flow.measure(made(model))


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_flow_in_an_encoder_decoder_joins_what_the_encoder_reads_and_what_the_answer_asks(family):
    model = tiny.make(family)
    round = made(model)
    found = flow.measure(round)
    kept: dict[str, torch.Tensor] = {}
    (batch,) = round.batches()
    saliency(model, batch, round.tokens, round.gold, lambda name, one: kept.__setitem__(name, one))
    for layer, (reads, asks) in enumerate(zip(round.reading, round.last, strict=True)):
        expected = []
        for row, prompt in enumerate(round.prompts):
            n = len(prompt.ids)
            square = torch.zeros(n + 1, n + 1, dtype=torch.float64)
            square[:-1, :-1], square[-1, :-1] = kept[reads][row, :n, :n], kept[asks][row, 1, :n]
            expected.append(literal.flows_both_ways(square.tolist(), list(prompt.spans.of("label"))))
        means = torch.tensor(expected, dtype=torch.float64).mean(0)
        assert found["saliency"][layer] == pytest.approx(means.tolist(), rel=1e-9)


NOT_IN_A_CACHE = ["deepseek_v3", "gemma4_unified_text"]  # keys made of a latent state, and those of another layer


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", *NOT_IN_A_CACHE])
def test_demonstrations_that_queries_share_are_read_once_with_the_answers_of_whole_prompts(family: str) -> None:
    """A cut too: it is in the demonstrations, and they do not look at the query."""
    model, tokenizer = zoo(family) if family in NOT_IN_A_CACHE else tiny.make(family), tiny.tokenizer()
    rows = TASK.encode(QUERIES * 3, tokenizer, model_kind="decoder", behind="")
    told_apart = choices(TASK.word_ids(tokenizer, "decoder"))
    prompts = [Prompt(demonstrated(number % 2, TASK), row) for number, row in enumerate(rows * 2)]
    shared, whole = (Round(model, tokenizer, told_apart, TASK.labels, prompts, seed=0) for _ in range(2))
    whole.__dict__["read"] = None
    with tiny.Float64():
        assert shared.read is not None and len(shared.read) == 2
        torch.testing.assert_close(shared.logits, whole.logits, rtol=0, atol=1e-12)
        for names in (whole.reading[:1], whole.reading):
            for words in ("label words", "random words"):
                got, expected = (isolate._cut(one, words, names) for one in (shared, whole))
                torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert (got - shared.logits).abs().max() > 1e-4


def test_passes_of_layers_that_take_the_keys_of_others_begin_at_none() -> None:
    model, tokenizer = zoo("gemma4_unified_text"), tiny.tokenizer()
    rows = TASK.encode(QUERIES * 2, tokenizer, model_kind="decoder", behind="")
    told_apart = choices(TASK.word_ids(tokenizer, "decoder"))
    prompts = [Prompt(demonstrated(0, TASK), row) for row in rows]
    round = Round(model, tokenizer, told_apart, TASK.labels, prompts, seed=0, begun_at=(1, 2, 3))
    assert round.read is not None and plain_layers(model) is not None and not round.can_begin
    assert isolate.measure(round)["cuts"][0]["layers"] == 1


def test_demonstrations_that_few_queries_share_are_read_with_each() -> None:
    assert made(tiny.make("gpt2")).read is None and made(tiny.make("t5")).read is None


LAYERS = {
    "gpt2": "n_layer",
    "llama": "num_hidden_layers",
    "gpt_neox": "num_hidden_layers",
    "gemma2": "num_hidden_layers",
}


@pytest.mark.parametrize("family", LAYERS)
def test_passes_that_are_alike_below_a_cut_begin_at_it_with_the_numbers_of_whole_ones(family: str) -> None:
    """Two groups of demonstrations in several batches; every layer does its work again afterwards."""
    config = copy.deepcopy(tiny.make(family).config)
    setattr(config, LAYERS[family], 6)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[0]] * 6
    model, tokenizer = tiny.build(transformers.AutoModelForCausalLM, config), tiny.tokenizer()
    rows = TASK.encode(QUERIES * 3, tokenizer, model_kind="decoder", behind="")
    told_apart = choices(TASK.word_ids(tokenizer, "decoder"))
    prompts = [Prompt(demonstrated(number % 2, TASK), row) for number, row in enumerate(rows * 2)]
    quick, whole = (
        Round(model, tokenizer, told_apart, TASK.labels, prompts, seed=0, at_once=4, begun_at=begun_at)
        for begun_at in ((1, 2, 4), ())
    )
    whole.__dict__["read"] = None  # each prompt is read whole, demonstrations and all
    with tiny.Float64():
        assert quick.can_begin and not whole.can_begin
        for names in (whole.reading[:1], whole.reading[:3], whole.reading[1:], whole.reading[3:], whole.reading[5:]):
            got, expected = (isolate._cut(one, "label words", names) for one in (quick, whole))
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        assert torch.equal(got, quick.logits)
        torch.testing.assert_close(quick.logits, whole.logits, rtol=0, atol=1e-12)


def test_a_model_whose_layers_are_no_plain_list_is_passed_as_a_whole() -> None:
    assert plain_layers(tiny.make("t5")) is None and len(plain_layers(tiny.make("gpt2")) or ()) == 2
