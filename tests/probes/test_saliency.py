"""Saliency against finite differences, in any batch and chunk; isolation against attention written out."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
from anchor_tools import prompted
from reference import anchors as literal

import tunescope as ts
from tunescope.attachment.attention.edit import editing
from tunescope.attachment.attention.function import Edit
from tunescope.attachment.attention.record import record
from tunescope.probes.anchors import saliency as saliencies
from tunescope.probes.anchors.isolation import control, isolated, modules
from tunescope.probes.anchors.prompts import Prompt, batch, choices
from tunescope.probes.anchors.saliency import answers, saliency
from tunescope.tasks.prompts.spans import Spans
from tunescope.tasks.task import Encoded

STEP = 1e-3  # transformers computes RMS norms in float32 whatever the model is in: smaller steps drown
FAMILIES = ("gpt2", "llama", "gemma2", "opt", "t5", "bart")


def salient(model: Any, prompts: Any, told: Any, **options: Any) -> tuple[dict[str, torch.Tensor], Any]:
    made = batch(model, tiny.tokenizer(), prompts, told.lead)
    gold = torch.tensor([prompt.query.label for prompt in prompts])
    kept: dict[str, torch.Tensor] = {}
    saliency(model, made, torch.tensor(told.tokens), gold, lambda name, one: kept.__setitem__(name, one), **options)
    return kept, made


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_how_the_loss_moves_with_the_attention_of_all_heads(family):
    model = tiny.make(family)
    prompts, told = prompted(model)
    kept, made = salient(model, prompts, told)
    gold = torch.tensor([prompt.query.label for prompt in prompts])

    def loss(name: str, place: tuple[int, int, int], factor: float) -> float:
        def scaled(weights: torch.Tensor, _kwargs: Any) -> torch.Tensor:
            change = torch.ones_like(weights)
            change[place[0], :, place[1], place[2]] += factor
            return weights * change

        with editing(model, {name: Edit(weights=scaled)}), torch.no_grad():
            logits = answers(model, made)[:, list(told.tokens)]
        return float(F.cross_entropy(logits, gold, reduction="sum"))

    assert kept
    for name, found in kept.items():
        for flat in found.flatten().argsort(descending=True)[:3].tolist():
            place = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), found.shape))
            slope = (loss(name, place, STEP) - loss(name, place, -STEP)) / (2 * STEP)
            assert abs(slope) == pytest.approx(float(found[place]), rel=2e-3, abs=1e-6), (name, place)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_rows_saliency_is_the_same_alone_and_in_any_number_of_passes(family):
    model = tiny.make(family)
    prompts, told = prompted(model)
    whole, made = salient(model, prompts, told)
    parts, _ = salient(model, prompts, told, at_once=1)
    alone, _ = salient(model, prompts[1:], told)
    skip = int(made.offset[1])
    assert set(parts) == set(whole) and skip > 0
    for name, one in whole.items():
        torch.testing.assert_close(parts[name], one, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(alone[name][0], one[1, skip:, skip:], rtol=1e-8, atol=1e-12)


def test_the_model_is_left_as_it_was():
    model = tiny.make("llama")
    prompts, told = prompted(model)
    before = {name: (p.requires_grad, p.grad) for name, p in model.named_parameters()}
    salient(model, prompts, told)
    assert {name: (p.requires_grad, p.grad) for name, p in model.named_parameters()} == before
    assert model.config._attn_implementation != "tunescope"
    assert not any("_tunescope" in vars(module) for module in model.modules())


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_an_isolated_word_sees_itself_alone(family):
    model = tiny.make(family)
    prompts, told = prompted(model)
    made = batch(model, tiny.tokenizer(), prompts, told.lead)
    words = [prompt.spans.labels for prompt in prompts]
    with isolated(model, made, words, modules(model, [0])):
        kept = record(model, {**made.inputs, "use_cache": False}, "query", "key", "value", "output")
    query, key, value, output = (kept[f"decoder.0.self.{name}"][1] for name in ("query", "key", "value", "output"))
    groups, skip = len(query) // len(key), int(made.offset[1])
    key, value = key.repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
    expected = literal.isolated_attention(
        *(one[:, skip:] for one in (query, key, value)), query.shape[-1] ** -0.5, list(words[1])
    )
    torch.testing.assert_close(output[:, skip:], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gemma2"])  # its own softmax is in float32
def test_isolation_of_nothing_changes_nothing_and_of_labels_something(family):
    model = tiny.make(family)
    prompts, told = prompted(model)
    prompts = prompts[:1]  # without padding: under it transformers' own eager attention is NaN in float64
    made = batch(model, tiny.tokenizer(), prompts, told.lead)
    names = modules(model, [0, 1])
    with torch.no_grad():
        plain = answers(model, made)
        with isolated(model, made, [()] * len(prompts), names):
            torch.testing.assert_close(answers(model, made), plain, rtol=1e-12, atol=1e-13)
        with isolated(model, made, [prompt.spans.labels for prompt in prompts], []):
            torch.testing.assert_close(answers(model, made), plain, rtol=1e-12, atol=1e-13)
        with isolated(model, made, [prompt.spans.labels for prompt in prompts], names):
            assert not torch.allclose(answers(model, made), plain, rtol=1e-6)


def test_the_control_is_as_many_other_words_of_the_same_length():
    model = tiny.make("gpt2")
    spans = prompted(model)[0][0].spans
    for seed in range(20):
        drawn = control(spans, seed)
        assert sorted(map(len, drawn)) == sorted(map(len, spans.labels))
        assert not {at for word in drawn for at in word} & {0, *spans.of("label")}
        assert len({at for word in drawn for at in word}) == sum(map(len, drawn))  # none is cut twice
    assert control(spans, 3) == control(spans, 3)
    assert len({tuple(control(spans, seed)) for seed in range(20)}) > 5


def test_where_other_tokens_are_few_the_control_has_all_of_them_and_no_more():
    found = prompted(tiny.make("gpt2"))[0][0].spans
    own = found.of("label")
    few = replace(found, ids=found.ids[: max(own) + 1])
    free = set(range(1, len(few.ids))) - set(own)
    labels = [tuple(range(at, at + 1)) for at in own] * 4  # more than there are others
    drawn = control(SimpleNamespace(ids=few.ids, labels=labels, of=few.of), 0)
    assert {at for word in drawn for at in word} == free
    with pytest.raises(ts.UserError, match="have no tokens beside their label words"):
        control(SimpleNamespace(ids=(5, 6), labels=[(1,)], of=lambda *_: (1,)), 0)


def test_what_cannot_be_asked_is_one_clear_line():
    with pytest.raises(ts.UserError, match="In an encoder label words look at the query"):
        batch(tiny.make("bert"), tiny.tokenizer(), prompted(tiny.make("gpt2"))[0])
    with pytest.raises(ts.UserError, match="begin with the same token"):
        choices({"a": (1, 2), "b": (1, 3), "c": (4,)})
    model = tiny.make("gpt2")
    prompts, _ = prompted(model)
    model.config.n_positions = len(prompts[0].ids) - 1
    with pytest.raises(ts.UserError, match=r"A prompt has \d+ tokens .* give fewer demonstrations"):
        batch(model, tiny.tokenizer(), prompts)


@pytest.mark.parametrize("family", ["bart", "llama"])
def test_a_prompt_may_be_as_long_as_the_model_and_what_is_read_behind_it_counts_in_a_decoder_alone(family):
    """A decoder reads what the answer begins with behind the prompt; an encoder does not."""
    model = tiny.make(family)
    longest, lead = model.config.max_position_embeddings, (1,)
    fits = longest - (family == "llama")
    for length in (fits, fits + 1):
        query = Encoded(1, tuple(tiny.ids(1, length)[0].tolist()), (5,), 0, ("a",), "")
        prompts = [Prompt(Spans((), (), ()), query)]
        if length == fits:
            assert batch(model, tiny.tokenizer(), prompts, lead).inputs["input_ids"].shape[1] == longest
            continue
        with pytest.raises(ts.UserError, match=f"A prompt has {longest + 1} tokens .*the model takes {longest}"):
            batch(model, tiny.tokenizer(), prompts, lead)


def test_classes_are_told_apart_behind_what_all_their_words_begin_with():
    assert choices({"a": (1, 2), "b": (1, 3, 4)}).lead == (1,)
    assert choices({"a": (1, 2), "b": (1, 3, 4)}).tokens == (2, 3)
    assert choices({"a": (7,), "b": (8, 9)}) == choices({"a": (7, 1), "b": (8,)})


def test_products_of_small_numbers_are_no_zeros_in_16_bits(monkeypatch: Any) -> None:
    monkeypatch.setattr(saliencies, "watching", lambda told: told)
    found: list[torch.Tensor] = []
    told: Any = saliencies._watched("a", lambda _name, value: found.append(value))
    weights, gradient = (torch.full((1, 3, 1, 1), each, dtype=torch.float16) for each in (1e-4, -2e-4))
    told(weights, gradient)
    wanted = 3 * float(weights[0, 0, 0, 0]) * float(-gradient[0, 0, 0, 0])
    assert float(weights[0, 0, 0, 0] * gradient[0, 0, 0, 0]) == 0.0  # in the type itself
    assert found[0].item() == pytest.approx(wanted, rel=1e-6)
