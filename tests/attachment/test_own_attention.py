"""Families that compute attention by themselves, reached all the same: their own forward is the oracle, in float64."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from torch import Tensor
from traces import assert_no_trace, trace
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon
from unlisted import OWN_ATTENTION
from zoo import ZOO

import tunescope as ts
from tunescope.attachment.attention.own import FOLDER, find_own
from tunescope.attachment.attention.reach import reached, switched
from tunescope.attachment.attention.record import record, record_calls, replay
from tunescope.methods.artifact import Artifact
from tunescope.system import plugins

FALCON = {**tiny.DECODER, "hidden_size": 24, "num_hidden_layers": 2}
# 12 heads: slopes that are no powers of two, so biases are rounded
FAMILIES: dict[str, Callable[[], Any]] = {
    **{name: ZOO[name] for name in OWN_ATTENTION},
    "bloom": lambda: tf.BloomConfig(**tiny.DECODER, hidden_size=24, n_layer=2, n_head=12),
    "bloom-slices": lambda: tf.BloomConfig(
        **tiny.DECODER, hidden_size=24, n_layer=2, n_head=3, pretraining_tp=2, slow_but_exact=True
    ),
    "falcon-heads": lambda: tf.FalconConfig(**FALCON, num_attention_heads=3, multi_query=False, bias=True),
    "falcon-groups": lambda: tf.FalconConfig(
        **FALCON, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True
    ),
    "falcon-alibi": lambda: tf.FalconConfig(**FALCON, num_attention_heads=12, multi_query=False, alibi=True),
    "falcon-alibi-query": lambda: tf.FalconConfig(**FALCON, num_attention_heads=3, alibi=True),
}
ALIBI = ("bloom", "bloom-slices", "falcon-alibi", "falcon-alibi-query")
LAYER = dict.fromkeys(("gptj", "codegen", "gpt_neo"), "transformer.h.1.attn") | dict.fromkeys(
    ("falcon", "bloom"), "transformer.h.1.self_attention"
)
PADDINGS = ("none", "left", "right")
FRONT = 6  # tokens, more than GPT-Neo's window here

every = pytest.mark.parametrize("name", FAMILIES)
padded = pytest.mark.parametrize("padding", PADDINGS)


@pytest.fixture(autouse=True)
def in_float64() -> Iterator[None]:
    with tiny.Float64():
        yield


def make(name: str, attention: str | None = None) -> Any:
    return tiny.build(tf.AutoModelForCausalLM, FAMILIES[name](), attention=attention)


def text(model: Any, padding: str) -> dict[str, Tensor]:
    """Inputs as `generate` makes them: positions from the mask."""
    given = tiny.batch(model, padding)
    if padding == "none":
        given["attention_mask"] = torch.ones_like(given["input_ids"])
    return given


def words(n: int = FRONT, seed: int = 5) -> Artifact:
    return Artifact(ts.Text(text="w"), {"ids": tiny.ids(1, n, seed=seed)[0]})


def joined(given: dict[str, Tensor], front: Tensor) -> dict[str, Tensor]:
    """The same with tokens (n,) between left padding and text, and positions and mask of the whole."""
    rows, masks = [], []
    for row, mask in zip(given["input_ids"], given["attention_mask"], strict=True):
        at = int(mask.argmax())
        rows.append(torch.cat([row[:at], front, row[at:]]))
        masks.append(torch.cat([mask[:at], torch.ones_like(front), mask[at:]]))
    mask = torch.stack(masks)
    return {
        "input_ids": torch.stack(rows),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
    }


def at_text(whole: Tensor, given: dict[str, Tensor], n_front: int) -> Tensor:
    """(tokens, width) of the whole's outputs at the real tokens of the text alone."""
    rows = []
    for row, mask in zip(whole, given["attention_mask"], strict=True):
        at = int(mask.argmax())
        kept = row[at + n_front :][: int(mask.sum())]
        rows.append(kept)
    return torch.cat(rows)


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@every
@padded
def test_with_ours_in_place_the_bare_model_is_the_family_s_with_a_cache_and_without(name: str, padding: str) -> None:
    model = make(name)
    given = text(model, padding)
    before = trace(model)
    with torch.no_grad():
        expected = tiny.real(given, model(**given, use_cache=False).logits)
        own = stepwise(model, given)
        with switched(model):
            close(tiny.real(given, model(**given, use_cache=False).logits), expected)
            close(tiny.real(given, stepwise(model, given)), tiny.real(given, own))
        bare = {"input_ids": given["input_ids"]}
        expected = model(**bare).logits
        with switched(model):
            close(model(**bare).logits, expected)
    assert_no_trace(model, before)


def stepwise(model: Any, given: dict[str, Tensor]) -> Tensor:
    """The logits of a text that comes in three calls with a cache: of 3 tokens, of 1, of the rest."""
    cache, outs, length = tf.DynamicCache(config=model.config), [], given["input_ids"].shape[1]
    for start, end in ((0, 3), (3, 4), (4, length)):
        part = {"input_ids": given["input_ids"][:, start:end], "attention_mask": given["attention_mask"][:, :end]}
        part["position_ids"] = given.get("position_ids", torch.arange(length)[None])[:, start:end]
        outs.append(model(**part, past_key_values=cache, use_cache=True).logits)
    return torch.cat(outs, 1)


@every
@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_generated_is_the_family_s_bare_and_behind_a_text(name: str, beams: int) -> None:
    model = make(name)
    given = {key: value for key, value in text(model, "left").items() if key != "position_ids"}
    own = generated(model, given, beams)
    with switched(model):
        same(generated(model, given, beams), own)
    front = words()
    whole = {key: value for key, value in joined(given, front.tensors["ids"]).items() if key != "position_ids"}
    expected = generated(model, whole, beams)
    with ts.attach(model, front):
        same(generated(model, given, beams), expected)
        same(generated(model, given, beams, use_cache=False), expected)
    assert (expected[1] - own[1]).abs().max() > 1e-3


def generated(model: Any, given: dict[str, Tensor], beams: int, **settings: Any) -> tuple[Tensor, Tensor]:
    """Six new tokens, and the scores of every step."""
    told = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    out = model.generate(**given, **told, **settings, output_scores=True, return_dict_in_generate=True)
    return out.sequences[:, -6:], torch.stack(out.scores)


def same(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(got[0], expected[0])
    close(got[1], expected[1])


@every
@padded
def test_a_text_in_front_is_the_same_tokens_in_the_row(name: str, padding: str) -> None:
    model, front = make(name), words()
    given = text(model, padding)
    whole = joined(given, front.tensors["ids"])
    before = trace(model)
    with torch.no_grad():
        expected = at_text(model(**whole).logits, given, FRONT)
        for artifacts in ([front], ts.lower(model, front), [words(2), words(4, seed=6)]):
            with ts.attach(model, *artifacts):
                got, alone = tiny.real(given, model(**given).logits), stepwise(model, given)
            if len(artifacts) == 2:
                ids = torch.cat([one.tensors["ids"] for one in artifacts])
                expected = at_text(model(**joined(given, ids)).logits, given, FRONT)
            close(got, expected)
            close(tiny.real(given, alone), expected)
    assert_no_trace(model, before)


@pytest.mark.parametrize("name", ["gptj", "codegen"])
def test_a_prefix_that_begins_as_words_is_these_words_in_front(name: str) -> None:
    """Rotary positions that each layer turns by itself: the text moves on, as behind words."""
    model, given = make(name), text(make(name), "none")
    front = torch.tensor([5, 6])
    with torch.no_grad():
        wanted = model(**joined(given, front)).logits[:, len(front) :]
        with ts.attach(model, ts.Prefix(length=2, init_from="text", text="w5 w6"), tokenizer=tiny.tokenizer()):
            found = model(**given).logits
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)


@every
@pytest.mark.parametrize("padding", ["left", "right"])
def test_positions_that_are_not_given_are_those_of_the_mask(name: str, padding: str) -> None:
    """By ALiBi also where what stands in front takes up no position, so that nobody tells any."""
    model = make(name)
    given = text(model, padding)
    moves = "zero" if name in ALIBI else "original"
    anchors = ts.Anchors(text="w5 w6 w7 w8", length=4, keep=(1, 3), positions=moves)
    with torch.no_grad(), ts.attach(model, anchors, tokenizer=tiny.tokenizer()):
        expected = tiny.real(given, model(**given).logits)
        del given["position_ids"]
        close(tiny.real(given, model(**given).logits), expected)


@every
@pytest.mark.parametrize("padding", ["none", "right"])
def test_a_soft_prompt_is_its_embeddings_in_front_of_the_text_s(name: str, padding: str) -> None:
    model = make(name)
    given = text(model, padding)
    soft = tiny.away(model, f"soft:length={FRONT}")[0]
    embeds = model.get_input_embeddings()(given["input_ids"])
    rows = soft.tensors["embeddings"].to(embeds.dtype).expand(2, -1, -1)
    whole = joined(given, torch.zeros(FRONT, dtype=torch.long))
    del whole["input_ids"]
    with torch.no_grad():
        expected = at_text(model(**whole, inputs_embeds=torch.cat([rows, embeds], 1)).logits, given, FRONT)
        with ts.attach(model, soft):
            close(tiny.real(given, model(**given).logits), expected)


def cached(model: Any, prefix: Artifact, rows: int) -> Any:
    """The prefix as past keys and values, put there by hand."""
    cache = tf.DynamicCache(config=model.config)
    for layer in range(2):
        key, value = (prefix.tensors[f"decoder.{layer}.self.{which}"].double() for which in ("key", "value"))
        cache.update(key.expand(rows, -1, -1, -1), value.expand(rows, -1, -1, -1), layer)
    return cache


def free_biases(n_front: int, own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """ALiBi's biases said by distance, (rows * heads, query, keys), none for the first keys; without padding."""

    def made(attention_mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
        by_key = own(attention_mask[:, n_front:], num_heads, dtype)
        by_distance = by_key - by_key.mT
        return torch.cat([torch.zeros_like(by_distance)[..., :1].expand(-1, -1, n_front), by_distance], -1)

    return made


@every
def test_a_prefix_is_past_keys_and_values_that_have_no_bias(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n = make(name), 3
    (prefix,) = tiny.away(model, f"prefix:length={n}")
    ids = tiny.ids(2, 5 - n if name == "gpt_neo" else 7)  # in GPT-Neo a cache leaves the window and a prefix does not
    mask, at = torch.ones(2, n + ids.shape[1], dtype=torch.long), torch.arange(ids.shape[1])[None]
    with ts.attach(model, prefix), torch.no_grad():
        got = model(ids, output_attentions=True)
    for module in (modeling_bloom, modeling_falcon):
        monkeypatch.setattr(module, "build_alibi_tensor", free_biases(n, module.build_alibi_tensor))
    given = {"input_ids": ids, "attention_mask": mask, "position_ids": at}
    with torch.no_grad():
        close(got.logits, model(**given, past_key_values=cached(model, prefix, 2)).logits)
        if "alibi" not in name:  # with weights asked for, Falcon's sdpa adds a mask of True and False, and eager twice
            eager = make(name, "eager" if "falcon" in name else None)
            own = eager(**given, past_key_values=cached(model, prefix, 2), output_attentions=True)
            for layer, weights in enumerate(own.attentions):
                close(got.attentions[layer], weights)
    assert all(
        weights.shape == (2, got.attentions[0].shape[1], len(at[0]), mask.shape[1]) for weights in got.attentions
    )


@pytest.mark.parametrize("name", ALIBI)
def test_a_prefix_has_the_same_score_at_any_distance(name: str) -> None:
    model = make(name)
    (prefix,) = tiny.away(model, "prefix:length=2")
    with ts.attach(model, prefix):
        kept = record(model, {"input_ids": tiny.ids(2, 7)}, "scores", "query", "context_key")
    for layer in ("decoder.0.self", "decoder.1.self"):
        query, key = kept[f"{layer}.query"], kept[f"{layer}.context_key"]
        expected = torch.einsum("bhqd,hnd->bhqn", query, key.expand(query.shape[1], -1, -1)) / query.shape[-1] ** 0.5
        close(kept[f"{layer}.scores"][..., :2], expected)


@every
@pytest.mark.parametrize("arm", ["prefix:length=3", f"soft:length={FRONT}", "infix:length=2"])
def test_gradients_are_the_same_with_checkpointing_after_other_passes_too(name: str, arm: str) -> None:
    plain, checkpointed = gradients(name, arm, is_on=False), gradients(name, arm, is_on=True)
    assert all(one.abs().max() > 1e-6 for one in plain)
    assert all(torch.equal(one, other) for one, other in zip(plain, checkpointed, strict=True))


def gradients(name: str, arm: str, *, is_on: bool) -> list[Tensor]:
    """Of a pass that another came after, with checkpointing or without."""
    model, calls = make(name).train(), list[None]()  # transformers checkpoints only then
    first, second = tiny.batch(model, "none"), {"input_ids": tiny.ids(2, 4, seed=8)}
    if is_on:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.get_submodule(LAYER[model.config.model_type]).register_forward_hook(lambda *_: calls.append(None))
    with ts.attach(model, *tiny.away(model, arm)) as tuned:
        tuned.train()
        told = {"output_start": torch.tensor([3, 2])} if tuned.wants_output_start else {}
        loss = model(**first, **told).logits.square().mean()
        model(**second, **told)
        calls.clear()
        loss.backward()
        assert bool(calls) == is_on  # the layer is computed again
        assert all(parameter.grad is None for parameter in model.parameters())
        return [leaf.grad for leaf in tuned.parameters()]


@every
def test_a_bank_s_rows_with_texts_of_other_lengths_are_each_as_alone(name: str) -> None:
    model = make(name)
    given = text(model, "left")
    fronts = {"long": words(), "short": words(2, seed=7)}
    with torch.no_grad():
        alone = []
        for row, front in enumerate(fronts.values()):
            with ts.attach(model, front):
                alone.append(model(**{key: value[row : row + 1] for key, value in given.items()}).logits[0])
        with ts.attach(model, ts.Bank({key: [front] for key, front in fronts.items()})):
            got = model(**given, rows=["long", "short"]).logits
    close(tiny.real(given, got), tiny.real(given, torch.stack(alone)))


@every
def test_probes_see_its_attention_and_replay_it(name: str) -> None:
    model = make(name)
    given = {"input_ids": tiny.ids(2, 7)}
    before = trace(model)
    with ts.attach(model, words()):
        kept = record(model, given, "weights", "output", "value", "context_value")
        again = replay(model, record_calls(model, given), "weights", "output")
    for layer in (f"decoder.{i}.self" for i in range(2)):
        weights, values = kept[f"{layer}.weights"], kept[f"{layer}.value"]
        assert weights.shape == (2, weights.shape[1], 7, FRONT + 7)
        close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        whole = torch.cat([kept[f"{layer}.context_value"].expand(2, -1, -1, -1), values], 2)
        close(kept[f"{layer}.output"], weights @ whole)
        close(again[f"{layer}.weights"], weights)
        close(again[f"{layer}.output"], kept[f"{layer}.output"])
    assert_no_trace(model, before)


def test_gpt_neo_s_local_layers_see_no_text_outside_of_their_window() -> None:
    model = make("gpt_neo")
    with ts.attach(model, words()):
        kept = record(model, {"input_ids": tiny.ids(2, 7)}, "weights")
    distance = (torch.arange(7) + FRONT)[:, None] - torch.arange(FRONT + 7)
    for layer, window in ((0, 64), (1, 5)):
        seen = (distance >= 0) & (distance < window)
        assert torch.equal(kept[f"decoder.{layer}.self.weights"] > 0, seen.expand(2, 3, 7, FRONT + 7))


@every
@pytest.mark.parametrize("attention", ["eager", None])
def test_it_is_undone_after_an_exception_and_within_is_the_family_s_own_where_that_is_named(
    name: str, attention: str | None
) -> None:
    if "alibi" in name and attention == "eager":
        pytest.skip("refused, below")
    model = make(name, attention)
    ids = tiny.ids(2, 7)
    before = trace(model)
    with torch.no_grad():
        expected = model(ids).logits
        with suppress(KeyError), ts.attach(model, words()):
            inside = model(ids).logits
            with switched(model):
                assert torch.equal(model(ids).logits, inside)
            assert torch.equal(model(ids).logits, inside)
            raise KeyError
        with switched(model), switched(model, before["attention"][""]):
            assert torch.equal(model(ids).logits, expected)
        assert torch.equal(model(ids).logits, expected)
    assert_no_trace(model, before)


def test_falcon_s_eager_alibi_is_refused_for_transformers_adds_it_twice() -> None:
    eager, sdpa = (make("falcon-alibi", attention) for attention in ("eager", "sdpa"))
    ids = tiny.ids(2, 7)
    with torch.no_grad():
        assert (eager(ids).logits - sdpa(ids).logits).abs().max() > 1e-3  # if not, transformers has mended it
    before = trace(eager)
    with pytest.raises(ts.UserError, match=r"biases twice .* Load the model with attn_implementation='sdpa'"):
        ts.attach(eager, ts.Prefix(length=2))
    assert_no_trace(eager, before)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_a_text_in_front_is_near_the_same_in_the_row(name: str, dtype: torch.dtype) -> None:
    exact, front = make(name), words()
    model = make(name).to(dtype)
    ids = tiny.ids(2, 7)
    with torch.no_grad():
        expected = exact(torch.cat([front.tensors["ids"].expand(2, -1), ids], 1)).logits[:, FRONT:]
        with ts.attach(model, front):
            got = model(ids)
    assert got.logits.dtype == dtype
    assert (got.logits - expected).abs().max() < 0.1 * expected.abs().max()


@every
def test_weights_are_dropped_in_training_where_the_family_drops_them(name: str) -> None:
    model, ids = make(name), tiny.ids(2, 7)
    for module in model.modules():
        for dropout in ("attn_dropout", "attention_dropout"):
            if hasattr(module, dropout):
                getattr(module, dropout).p = 0.5

    def draws_anew() -> bool:
        first, second = (model(ids).logits for _ in range(2))
        return not torch.equal(first, second)

    with torch.no_grad():
        own = draws_anew(), model.train() and draws_anew()
        assert own == (False, not name.startswith("falcon") or name in ALIBI)
        model.eval()
        with switched(model):
            assert (draws_anew(), model.train() and draws_anew()) == own


@pytest.mark.parametrize("name", [pytest.param("gpt_neo", marks=pytest.mark.slow), "bloom"])
def test_compiled_it_is_as_it_stands(name: str) -> None:
    model, ids = make(name), tiny.ids(2, 7)
    with ts.attach(model, words()), torch.no_grad():
        expected = model(ids).logits
        close(torch.compile(model, backend="eager")(ids).logits, expected)


def test_a_model_without_its_head_is_reached_too() -> None:
    model = make("bloom")
    base, ids = model.transformer, tiny.ids(2, 7)
    base.config.architectures = ["BloomForCausalLM"]
    before = trace(base)
    with torch.no_grad():
        with ts.attach(model, words()):
            expected = base(ids).last_hidden_state
        with ts.attach(base, words()):
            close(base(ids).last_hidden_state, expected)
    assert_no_trace(base, before)


def test_every_file_is_tried_here_and_found_by_its_name() -> None:
    assert set(plugins.names(FOLDER)) == set(OWN_ATTENTION)
    assert all(find_own(name) is not None for name in OWN_ATTENTION)
    assert find_own("llama") is None
    assert all(len(reached(make(name))) == 2 for name in FAMILIES)


@pytest.mark.parametrize("name", ALIBI)
def test_in_a_bank_a_row_whose_keys_are_free_has_no_bias_beside_one_whose_keys_stand_at_positions(name: str) -> None:
    model, ids = make(name), tiny.ids(2, 6)
    members = {"prefix": "prefix:length=3", "soft": "soft:length=2", "other": "prefix:length=4"}
    made = {member: tiny.away(model, spec, seed) for seed, (member, spec) in enumerate(members.items())}
    alone = {}
    for member, artifact in made.items():
        with ts.attach(model, *artifact), torch.no_grad():
            alone[member] = model(ids).logits
    with ts.attach(model, ts.Bank(made)), torch.no_grad():
        for rows in (["prefix", "soft"], ["soft", "other"], ["prefix", "other"]):
            found = model(ids, rows=rows).logits
            for row, member in enumerate(rows):
                torch.testing.assert_close(found[row], alone[member][row], rtol=0, atol=1e-12)
