"""Contexts against transformers' own eager attention and a literal attention that is not our code."""

from typing import Any

import pytest
import tiny
import torch
from reference import literal, prefix_mlp
from torch import Tensor
from transformers import DynamicCache, LlamaForSequenceClassification

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts import _network
from tunescope.methods.text_form import parse
from tunescope.models.anatomy import kind
from tunescope.models.family import family_names, find_family

FAMILIES = family_names()
DECODERS = [name for name in FAMILIES if find_family(name).kind == "decoder"]
ENCODERS = [name for name in FAMILIES if find_family(name).kind == "encoder"]
BOTH = [name for name in FAMILIES if find_family(name).kind == "encoder-decoder"]
GREEDY: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
N = 4


def words(model: Any) -> Artifact:
    return Artifact(ts.Text(text="four words of a"), {"ids": tiny.ids(1, N, seed=9)[0]})


def strong(model: Any, arm: str) -> Artifact:
    """Far from zero, so that a prefix that is not seen is missed."""
    (artifact,) = initialised(model, parse(arm), tiny.tokenizer(), 0)
    artifact.tensors = {name: 2 * value for name, value in artifact.tensors.items()}
    return artifact


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def rows_of(given: dict[str, Tensor]) -> list[Tensor]:
    """Each row's real ids, alone."""
    mask = given.get("attention_mask", torch.ones_like(given["input_ids"]))
    return [row[keep.bool()] for row, keep in zip(given["input_ids"], mask, strict=True)]


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_context_is_the_model_run_on_the_whole_text(family: str, padding: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    given = tiny.batch(model, padding)
    if padding == "left" and kind(model) == "encoder-decoder":
        with ts.attach(model, words(model)), pytest.raises(ts.UserError, match="Pad the text on the right"):
            tiny.output(model, given)
        return
    with torch.no_grad(), tiny.Float64():
        for artifact in (words(model), strong(model, f"soft:length={N}")):
            rows = artifact.spec.embeddings(artifact.tensors, eager.get_input_embeddings())
            with ts.attach(model, artifact) as tuned:
                got = tiny.output(model, {k: v for k, v in given.items() if k != "position_ids"})
            assert tuned.positions == N
            for row, alone in enumerate(rows_of(given)):
                text = torch.cat([rows, eager.get_input_embeddings()(alone)])[None]
                if kind(model) == "encoder-decoder":
                    whole = eager(inputs_embeds=text, decoder_input_ids=given["decoder_input_ids"][row : row + 1])
                    close(got[row], whole.logits[0])
                    continue
                whole = tiny.output(eager, {"inputs_embeds": text})[0, N:]
                at = given["attention_mask"][row].bool() if padding != "none" else slice(None)
                close(got[row][at], whole)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_is_keys_and_values_before_the_text(family: str, padding: str) -> None:
    model = tiny.make(family)
    artifact = strong(model, "prefix:length=3")
    given = tiny.batch(model, padding)
    told = dict(given)
    if family in ("bert", "distilbert") and padding == "left":  # they would count padding
        told["position_ids"] = (given["attention_mask"].cumsum(1) - 1).clamp(min=0)
    with torch.no_grad(), tiny.Float64():
        with ts.attach(model, artifact) as tuned:
            got = tiny.real(given, tiny.output(model, given))
        assert tuned.positions == 0
        with literal.standing(model, artifact.tensors):
            expected = tiny.real(given, tiny.output(model, told))
        without = tiny.real(given, tiny.output(model, told))
    close(got, expected)
    assert (got - without).abs().max() > 1e-3


@pytest.mark.parametrize("positions", ["same", "after"])
@pytest.mark.parametrize("family", [name for name in DECODERS if name not in ("mistral", "gemma2")])
def test_a_prefix_is_a_filled_cache_at_stated_positions(family: str, positions: str) -> None:
    """Windows hide a cache's far keys, and a prefix is seen through them: two families have no such cache."""
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    artifact = strong(model, f"prefix:length=3,positions={positions}")
    text = tiny.ids()
    cache = DynamicCache()
    for layer in range(2):
        pair = (artifact.tensors[f"decoder.{layer}.self.{which}"].expand(2, -1, -1, -1) for which in ("key", "value"))
        cache.update(*pair, layer)
    first = 3 if positions == "after" else 0
    with torch.no_grad(), tiny.Float64():
        with ts.attach(model, artifact) as tuned:
            got = model(input_ids=text).logits
        mask = torch.ones(2, 3 + text.shape[1], dtype=torch.long)
        at = torch.arange(first, first + text.shape[1])[None].expand(2, -1)
        expected = eager(input_ids=text, attention_mask=mask, position_ids=at, past_key_values=cache).logits
    assert tuned.positions == first
    close(got, expected)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_behind_a_prefix_an_encoder_s_text_stands_further_on_too(family: str, padding: str) -> None:
    """RoBERTa's first token stands at 2; what the caller says of positions is moved as well."""
    model = tiny.make(family)
    artifact, same = strong(model, "prefix:length=3,positions=after"), ts.Prefix(length=3)
    given = tiny.batch(model, padding)
    mask = given.get("attention_mask", torch.ones_like(given["input_ids"]))
    at = (mask.cumsum(1) - 1).clamp(min=0) + (2 if family == "roberta" else 0)
    with torch.no_grad(), tiny.Float64():
        with ts.attach(model, artifact) as tuned:
            got = [tiny.output(model, given), tiny.output(model, {**given, "position_ids": at})]
        with ts.attach(model, Artifact(same, artifact.tensors)):
            expected = tiny.output(model, {**given, "position_ids": at + 3})
            unmoved = tiny.output(model, given)
    assert tuned.positions == 3
    for one in got:
        close(tiny.real(given, one), tiny.real(given, expected))
    assert (tiny.real(given, expected - unmoved)).abs().max() > 1e-3


def test_a_family_that_takes_no_positions_cannot_move_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """DistilBERT took none once, and swallows what it does not know."""
    model, prefix = tiny.make("distilbert"), ts.Prefix(length=3, positions="after")
    with ts.attach(model, prefix):
        pass  # what is tried out of its family is, as it is today
    monkeypatch.setattr("tunescope.attachment.contexts.argument_names", lambda entry: ["input_ids", "attention_mask"])
    told = r"Family 'distilbert' takes no positions: use Prefix\(positions='same'\)"
    with ts.attach(model, prefix), torch.no_grad(), pytest.raises(ts.UserError, match=told):
        tiny.output(model, tiny.batch(model))


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_behind_a_prefix_the_text_fills_what_is_left_and_no_more(family: str) -> None:
    model = tiny.make(family)
    with ts.attach(model, ts.Prefix(length=10, positions="after")), torch.no_grad():
        tiny.output(model, {"input_ids": tiny.ids(1, 54)})
        with pytest.raises(ts.UserError, match=r"55 tokens and the context .* 10: .* 64 positions .*text to 54 tokens"):
            tiny.output(model, {"input_ids": tiny.ids(1, 55)})


@pytest.mark.parametrize("family", DECODERS)
def test_an_infix_is_seen_from_the_input_s_last_token_on(family: str) -> None:
    model = tiny.make(family)
    artifact = strong(model, "infix:length=3")
    for padding in ("none", "left", "right"):
        given = tiny.batch(model, padding)
        start = torch.tensor([3, 5]) if padding == "left" else torch.tensor([3, 1])
        with torch.no_grad(), tiny.Float64():
            with ts.attach(model, artifact) as tuned:
                got = tiny.output(model, {**given, "output_start": start})
            with literal.standing(model, artifact.tensors, start):
                expected = tiny.output(model, given)
            plain = tiny.output(model, given)
        assert tuned.wants_output_start
        close(tiny.real(given, got), tiny.real(given, expected))
        seen = tiny.real(given, (torch.arange(7) >= start[:, None])[..., None])[..., 0]
        difference = tiny.real(given, got - plain).abs().amax(-1)
        assert difference[~seen].max() < 1e-12
        assert difference[seen].min() > 1e-6


WRITING = ["prefix:length=3", "prefix:length=3,positions=after", f"soft:length={N}", "infix:length=3"]


@pytest.mark.parametrize("arm", WRITING)
@pytest.mark.parametrize("family", DECODERS)
def test_decoders_generate_the_same_padded_or_not_cached_or_not_greedy_or_beam(family: str, arm: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    artifact = strong(model, arm)
    is_soft = arm.startswith("soft")
    padded, plain = tiny.batch(model, "left"), tiny.batch(model, "none")
    padded.pop("position_ids")
    plain["attention_mask"] = torch.ones_like(plain["input_ids"])
    for search in ({}, {"num_beams": 3}):
        expected = [eager_tokens(eager, artifact, arm, row, search) for row in rows_of(padded)]
        full = eager_tokens(eager, artifact, arm, plain["input_ids"][0], search)
        with ts.attach(model, artifact), torch.no_grad():
            for use_cache in (True, False):
                got = model.generate(**padded, **GREEDY, **search, use_cache=use_cache)
                assert [row[7:].tolist() for row in got] == expected
                got = model.generate(**plain, **GREEDY, **search, use_cache=use_cache)
                assert got[0, 7:].tolist() == full
    assert is_soft or "key" in next(iter(artifact.tensors))


@pytest.mark.parametrize("arm", WRITING)
@pytest.mark.parametrize("family", DECODERS)
def test_other_caches_and_ways_of_decoding_write_the_same(family: str, arm: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    artifact = strong(model, arm)
    row = torch.tensor([5, 6, 7, 5, 6, 8, 5])
    expected = eager_tokens(eager, artifact, arm, row, {})
    given = {"input_ids": row[None], "attention_mask": torch.ones(1, 7, dtype=torch.long)}
    draft = tiny.make(family)  # it proposes tokens as the bare model would, and the tuned one decides
    ways = (
        {"cache_implementation": "static"},
        {"prompt_lookup_num_tokens": 3},
        {"prefill_chunk_size": 3},
        {"assistant_model": draft},
    )
    with ts.attach(model, artifact), torch.no_grad():
        for how in ways:
            assert model.generate(**given, **GREEDY, **how)[0, 7:].tolist() == expected, how
        embedded = {"inputs_embeds": model.get_input_embeddings()(row[None]), "attention_mask": given["attention_mask"]}
        assert model.generate(**embedded, **GREEDY, cache_implementation="static")[0].tolist() == expected
    assert not any(name.startswith("_tunescope") or name == "generate" for name in model.__dict__)


@pytest.mark.parametrize("is_banked", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_draft_of_the_first_layer_alone_is_decided_on_by_all_with_the_context_before_each(
    family: str, is_banked: bool
) -> None:
    """The draft is the first pass behind `attach`, and what it made of the context would be lacking elsewhere."""
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    artifact = strong(model, f"soft:length={N}")
    row = torch.tensor([5, 6, 7, 5, 6, 8, 5])
    expected = eager_tokens(eager, artifact, f"soft:length={N}", row, {})
    attached, rows = (ts.Bank({"a": artifact}), {"rows": ["a"]}) if is_banked else (artifact, {})
    with ts.attach(model, attached), torch.no_grad():
        assert model.generate(row[None], **GREEDY, **rows, assistant_early_exit=1)[0, 7:].tolist() == expected
    assert model.config.num_hidden_layers == 2


def eager_tokens(model: Any, artifact: Artifact, arm: str, row: Tensor, search: dict[str, Any]) -> list[int]:
    """What a literal model writes after one unpadded row."""
    mask = torch.ones(1, len(row), dtype=torch.long)
    with torch.no_grad():
        if arm.startswith("soft"):
            text = torch.cat([artifact.tensors["embeddings"], model.get_input_embeddings()(row)])[None]
            mask = torch.ones(1, N + len(row), dtype=torch.long)
            return model.generate(inputs_embeds=text, attention_mask=mask, **GREEDY, **search)[0].tolist()
        start = torch.tensor([len(row) - 1] * search.get("num_beams", 1)) if arm.startswith("infix") else None
        with literal.standing(model, artifact.tensors, start), shifted(model, 3 if "after" in arm else 0):
            out = model.generate(input_ids=row[None], attention_mask=mask, **GREEDY, **search)
    return out[0, len(row) :].tolist()


class shifted:  # noqa: N801
    """Positions that generation makes, moved on by a number."""

    def __init__(self, model: Any, by: int) -> None:
        self.entry, self.by = model.base_model.get_decoder(), by

    def __enter__(self) -> None:
        def move(_module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            return args, {**kwargs, "position_ids": kwargs["position_ids"] + self.by}

        self.handle = self.entry.register_forward_pre_hook(move, with_kwargs=True)

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


@pytest.mark.parametrize("arm", ["prefix:length=3", f"soft:length={N}"])
@pytest.mark.parametrize("family", BOTH)
def test_encoder_decoders_generate_the_same_padded_or_not_cached_or_not_greedy_or_beam(family: str, arm: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    artifact = strong(model, arm)
    for padding in ("right", "left") if family == "t5" and arm.startswith("prefix") else ("right",):
        padded = {k: v for k, v in tiny.batch(model, padding).items() if k != "decoder_input_ids"}
        for search in ({}, {"num_beams": 3}):
            expected = [both_tokens(eager, artifact, row, search) for row in rows_of(padded)]
            with ts.attach(model, artifact), torch.no_grad():
                for use_cache in (True, False):
                    got = model.generate(**padded, **GREEDY, **search, use_cache=use_cache)
                    assert got.tolist() == expected


def both_tokens(model: Any, artifact: Artifact, row: Tensor, search: dict[str, Any]) -> list[int]:
    with torch.no_grad():
        if "embeddings" in artifact.tensors:
            text = torch.cat([artifact.tensors["embeddings"], model.get_input_embeddings()(row)])[None]
            return model.generate(inputs_embeds=text, **GREEDY, **search)[0].tolist()
        with literal.standing(model, artifact.tensors):
            return model.generate(input_ids=row[None], **GREEDY, **search)[0].tolist()


@pytest.mark.parametrize("family", DECODERS)
def test_a_cache_continued_in_steps_equals_one_pass(family: str) -> None:
    model = tiny.make(family)
    text = tiny.ids(length=9)
    for arm in ("prefix:length=3", "prefix:length=2,positions=after", f"soft:length={N}", "infix:length=2"):
        with ts.attach(model, strong(model, arm)) as tuned, torch.no_grad():
            more = {"output_start": torch.tensor([4, 4])} if tuned.wants_output_start else {}
            whole = model(input_ids=text, **more).logits
            first = model(input_ids=text[:, :5], use_cache=True, **more)
            second = model(input_ids=text[:, 5:8], past_key_values=first.past_key_values, use_cache=True)
            third = model(input_ids=text[:, 8:], past_key_values=second.past_key_values, use_cache=True)
            parts = (text[:, :3], text[:, 3:6], text[:, 6:])  # cut within the input, which is then told every time
            cache, cut = None, []
            for part in parts:
                out = model(input_ids=part, past_key_values=cache, use_cache=True, **more)
                cache, cut = out.past_key_values, [*cut, out.logits]
        close(torch.cat([first.logits, second.logits, third.logits], 1), whole)
        close(torch.cat(cut, 1), whole)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "bart", "t5"])
def test_the_reparametrising_network_is_li_and_liang_s(family: str) -> None:
    model = tiny.make(family)
    artifact = strong(model, "prefix:length=3,mlp=5")
    folded = artifact.fold()
    expected = prefix_mlp.keys_values(artifact.tensors, length=3)
    assert folded.spec == ts.Prefix(length=3)
    assert folded.tensors.keys() == expected.keys()
    for name, value in expected.items():
        close(folded.tensors[name], value)


@pytest.mark.parametrize(("family", "steps"), [("gpt2", 500), ("bart", 50)])  # three kinds of attention take long
def test_a_network_is_fitted_to_words_as_li_and_liang_s(
    family: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 steps of Adam at 1e-4 on the mean squared error, taken by the reference's network from the same start."""
    assert _network.FIT_STEPS == 500
    monkeypatch.setattr(_network, "FIT_STEPS", steps)
    model = tiny.make(family)

    def begun(**fields: Any) -> Artifact:
        return initialised(model, [ts.Prefix(length=2, **fields)], tiny.tokenizer(), 0)[0]

    text = {"init_from": "text", "text": "w5 w6"}
    words, found = begun(**text), begun(mlp=5, **text)
    given = {name: value.clone().requires_grad_() for name, value in begun(mlp=5).tensors.items()}
    optimizer = torch.optim.Adam(given.values(), 1e-4)
    wanted = torch.cat([value.flatten() for value in words.tensors.values()])
    for _ in range(steps):
        made = prefix_mlp.keys_values(given, length=2)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(torch.cat([made[name].flatten() for name in words.tensors]), wanted).backward()
        optimizer.step()
    for name, value in given.items():
        torch.testing.assert_close(found.tensors[name], value.detach(), atol=1e-4, rtol=0)  # it is fitted in float32
    assert found.fold().spec == ts.Prefix(length=2)


def test_an_infix_has_the_same_network() -> None:
    artifact = strong(tiny.make("llama"), "infix:length=3,mlp=5")
    expected, folded = prefix_mlp.keys_values(artifact.tensors, length=3), artifact.fold()
    assert folded.spec == ts.Infix(length=3) and folded.tensors.keys() == expected.keys()
    for name, value in expected.items():
        close(folded.tensors[name], value)


def test_a_prefix_from_text_is_the_model_s_own_keys_and_values() -> None:
    for family in ("gpt2", "llama", "bert"):
        model = tiny.make(family, attention="eager")
        text = "w5 w6 w7"
        seen: dict[str, tuple[Tensor, Tensor]] = {}

        def note(module: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any, names: dict[Any, str], seen: Any) -> None:
            seen[names[module]] = (k[0], v[0])

        names = {module: name for name, module in literal.modules(model).items()}
        original = literal.literal

        def spy(module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **kw: Any) -> Any:
            note(module, query, key, value, names=names, seen=seen)  # noqa: B023
            return original(module, query, key, value, *rest, **kw)  # noqa: B023

        literal.AttentionInterface.register("literal", spy)
        try:
            model.set_attn_implementation("literal")
            with torch.no_grad():
                model(input_ids=torch.tensor([[5, 6, 7]]))
        finally:
            literal.AttentionInterface.register("literal", original)
            model.set_attn_implementation("eager")
        (artifact,) = initialised(model, [ts.Prefix(length=3, init_from="text", text=text)], tiny.tokenizer(), 0)
        for name, (key, value) in seen.items():
            close(artifact.tensors[f"{name}.key"], key)
            close(artifact.tensors[f"{name}.value"], value)


def test_a_prefix_that_begins_as_a_text_has_the_keys_of_its_first_tokens() -> None:
    model = tiny.make("llama")
    longer, exact = (
        initialised(model, [ts.Prefix(length=2, init_from="text", text=text)], tiny.tokenizer(), 0)[0].tensors
        for text in ("w5 w6 w7", "w5 w6")
    )
    assert all(torch.equal(longer[name], exact[name]) for name in exact)


def test_soft_prompts_start_where_they_say() -> None:
    model = tiny.make("gpt2")
    table = model.get_input_embeddings().weight.detach()

    def rows(**fields: Any) -> Tensor:
        (artifact,) = initialised(model, [ts.Soft(**fields)], tiny.tokenizer(), 0)
        return artifact.tensors["embeddings"]

    assert torch.equal(rows(length=3, init_from="text", text="w5 w6"), table[[5, 6, 5]])
    assert torch.equal(rows(length=2, init_from="text", text="w5 w6 w7"), table[[5, 6]])
    labels = rows(length=3, init_from="labels", text="w4 w5/w6")
    close(labels[:2], torch.stack([(table[4] + table[5]) / 2, table[6]]))
    for row in [*rows(length=6), labels[2]]:
        assert (table == row).all(-1).any()
    every = rows(length=len(table) - 4)  # all words there are, each once: not the three specials, nor the unknown one
    assert torch.equal(every.sort(0).values, table[4:].sort(0).values)
    assert torch.equal(rows(length=len(table))[:4], rows(length=len(table))[-4:])  # and over again from the first
    assert torch.equal(rows(length=2, init_from="labels", text="w4/w5/w6"), table[[4, 5]])  # no room for the last
    uniform = rows(length=60, init_from="uniform")
    assert uniform.min() < -0.45 and uniform.max() > 0.45 and uniform.abs().max() <= 0.5
    normal = rows(length=60, init_from="normal")
    assert float(normal.std() / table.std()) == pytest.approx(1, abs=0.15)


def test_the_seed_decides_the_start_and_torch_s_own_generator_is_left_alone() -> None:
    model = tiny.make("llama")
    specs = (ts.Prefix(length=2), ts.LoRA(rank=2), ts.Soft(length=2))
    torch.manual_seed(11)
    state = torch.get_rng_state()
    starts = []
    for seed in (0, 0, 1):
        with ts.attach(model, *specs, seed=seed) as tuned:
            starts.append(tuned.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, starts[1][name]) for name, value in starts[0].items())
    assert not all(torch.equal(value, starts[2][name]) for name, value in starts[0].items())


@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_a_text_s_keys_follow_the_deltas_that_are_trained_over_it(family: str) -> None:
    model, given = tiny.make(family), tiny.batch(tiny.make(family), "none")
    for delta in (ts.LoRA(rank=2), ts.Full()):
        with ts.attach(model, words(model), delta) as tuned:
            optimizer = torch.optim.SGD(tuned.train().parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                tiny.output(model, given).square().mean().backward()
                optimizer.step()
            with torch.no_grad():
                trained = tiny.output(tuned.eval().model, given)
                for leaf in tuned.parameters():
                    leaf.add_(0.1)
                moved = tiny.output(model, given)
        with ts.attach(model, *tuned.artifacts), torch.no_grad():
            assert torch.equal(tiny.output(model, given), moved)
        assert (trained - moved).abs().max() > 1e-6


def test_lowered_keys_are_made_under_the_deltas_and_refused_under_others() -> None:
    model = tiny.make("gpt2")
    for delta in (ts.LoRA(rank=2), ts.Bias(), ts.Full()):
        change = initialised(model, [delta], None, 0)[0]
        change.tensors = {name: value + 0.1 for name, value in change.tensors.items()}
        lowered = ts.lower(model, words(model), change)
        with torch.no_grad():
            with ts.attach(model, words(model), change):
                expected = tiny.output(model, tiny.batch(model))
            with ts.attach(model, *lowered):
                close(tiny.output(model, tiny.batch(model)), expected)
        fresh = initialised(model, [delta], None, 1)[0]
        for others in (lowered[:1], [words(model), *lowered], [lowered[0], fresh], [*lowered, fresh]):
            with pytest.raises(ts.UserError, match=r"lowered under other weights .* Lower again"):
                ts.attach(model, *others)
        with ts.attach(model, *lowered) as tuned, pytest.raises(ts.UserError, match="go stale in training"):
            tuned.train()


def test_lowered_contexts_stand_in_order_and_load_again(tmp_path: Any) -> None:
    for family in DECODERS:
        model = tiny.make(family)
        artifacts = [words(model), strong(model, "prefix:length=2"), strong(model, "soft:length=3")]
        given = tiny.batch(model)
        with torch.no_grad():
            with ts.attach(model, *artifacts) as tuned:
                expected = tiny.output(model, given)
            lowered = ts.lower(model, *artifacts)
            ts.save(tmp_path / family, lowered, model=model)
            with ts.attach(model, *ts.load(tmp_path / family)) as low:
                got = tiny.output(model, given)
        assert tuned.positions == low.positions == N + 3
        close(tiny.real(given, got), tiny.real(given, expected))


def test_positions_count_what_a_context_uses_up_however_it_is_made() -> None:
    model = tiny.make("gpt2")
    for arm, used in {
        "prefix:length=3": 0,
        "prefix:length=3,positions=after": 3,
        "prefix:length=3,mlp=5,positions=after": 3,
        "soft:length=5+prefix:length=2,positions=after+text:text=w5 w6": 9,
        "infix:length=3": 0,
        "lora": 0,
    }.items():
        with ts.attach(model, *parse(arm), tokenizer=tiny.tokenizer()) as tuned:
            assert tuned.positions == used


@pytest.mark.parametrize("family", ["gpt2", "opt", "bert", "roberta", "distilbert", "bart"])
def test_a_text_too_long_for_the_positions_left_is_refused(family: str) -> None:
    model = tiny.make(family)
    limit = 64
    with ts.attach(model, ts.Soft(length=10)), torch.no_grad():
        fitting = {"decoder_input_ids": tiny.ids(1, 3)} if family == "bart" else {}
        tiny.output(model, {"input_ids": tiny.ids(1, limit - 10), **fitting})
        with pytest.raises(
            ts.UserError, match=r"55 tokens and the context .* 10: .* 64 positions .*Shorten the text to 54"
        ):
            tiny.output(model, {"input_ids": tiny.ids(1, limit - 9), **fitting})
        tiny.output(model, {"input_ids": tiny.ids(1, 5), **fitting})


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5"])
def test_attentions_are_given_where_they_are_asked_for_however_long_the_text(name: str) -> None:
    model = tiny.make(name)
    ids = torch.randint(3, tiny.VOCAB, (1, 40))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})
    with ts.attach(model, ts.Prefix(length=3)), torch.no_grad():
        out = model(**inputs, output_attentions=True)
    given = out.decoder_attentions if model.config.is_encoder_decoder else out.attentions
    assert [tuple(weights.shape[2:]) for weights in given] == [(40, 43)] * 2
    torch.testing.assert_close(given[0].sum(-1), torch.ones_like(given[0][..., 0]))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_texts_packed_into_one_row_are_as_alone_and_refused_by_an_infix(family: str) -> None:
    model = tiny.make(family)
    texts = [torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[9, 7, 6]])]
    packed = {"input_ids": torch.cat(texts, 1), "position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]])}
    for arm in ("prefix:length=3", "prefix:length=3,positions=after", f"soft:length={N}", "lora:rank=2"):
        with ts.attach(model, *tiny.away(model, arm)), torch.no_grad():
            close(model(**packed, use_cache=False).logits, torch.cat([model(input_ids=one).logits for one in texts], 1))
    told = {"output_start": torch.tensor([2])}
    with (
        ts.attach(model, ts.Infix(length=2)),
        pytest.raises(ts.UserError, match="several texts has more than one such"),
    ):
        model(**packed, **told, use_cache=False)


def test_an_infix_has_no_part_in_the_keys_of_a_soft_prompt_that_is_named_after_it() -> None:
    model, given = tiny.make("llama"), {"input_ids": tiny.ids(), "output_start": torch.tensor([3, 1])}
    infix, soft = strong(model, "infix:length=3"), strong(model, "soft:length=4")
    found = []
    for order in ((infix, soft), (soft, infix)):
        with torch.no_grad(), ts.attach(model, *order):
            found.append(tiny.output(model, given))
    close(*found)


def test_an_infix_without_a_cache_asks_where_the_output_begins() -> None:
    model = tiny.make("gpt2")
    ids = torch.randint(3, tiny.VOCAB, (1, 5))
    with ts.attach(model, ts.Infix(length=2)):
        with pytest.raises(ts.UserError, match="An infix without a cache needs output_start"):
            model(input_ids=ids, use_cache=False)
        model(input_ids=ids, use_cache=False, output_start=torch.tensor([3]))


def test_all_that_comes_in_a_later_call_is_output_however_many_tokens_it_has() -> None:
    model, ids, seen = tiny.make("llama"), tiny.ids(2, 6), torch.ones(2, 6, dtype=torch.long)
    artifact = strong(model, "infix:length=3")
    with torch.no_grad(), tiny.Float64():
        with ts.attach(model, artifact):
            first = model(input_ids=ids[:, :1], attention_mask=seen[:, :1], use_cache=True)
            later = model(input_ids=ids[:, 1:], attention_mask=seen, past_key_values=first.past_key_values)
        with literal.standing(model, artifact.tensors, torch.tensor([0, 0])):
            whole = model(input_ids=ids).logits
    close(torch.cat([first.logits, later.logits], 1), whole)


@pytest.mark.parametrize("in_a_bank", [False, True])
def test_an_infix_is_trained_where_the_output_begins_and_not_where_no_loss_sees_it(in_a_bank: bool) -> None:
    """The last token alone sees one whose place is not told, and the loss over a text leaves its logit out."""
    model, ids = tiny.make("llama"), tiny.ids()
    rows = {"rows": ["a", "a"]} if in_a_bank else {}
    with ts.attach(model, ts.Bank({"a": ts.Infix(length=2)}) if in_a_bank else ts.Infix(length=2)) as tuned:
        tuned.train()
        with pytest.raises(ts.UserError, match="An infix that is trained needs output_start"):
            model(input_ids=ids, labels=ids, **rows)
        model(input_ids=ids, labels=ids, output_start=torch.tensor([2, 3]), **rows).loss.backward()
        assert all(value.grad is not None and value.grad.abs().max() > 0 for value in tuned.parameters())
        with torch.no_grad():  # as it decodes: what the last token says is asked for
            model(input_ids=ids, **rows)
            with pytest.raises(ts.UserError, match=r"The loss over a text .* needs output_start.*remove_unused_col"):
                model(input_ids=ids, labels=ids, **rows)
            with pytest.raises(ts.UserError, match="The loss over a text"):
                model(ids, None, None, None, None, ids, **rows)
            model(input_ids=ids, labels=ids, output_start=torch.tensor([2, 3]), **rows)


def test_labels_of_a_row_are_no_loss_over_its_text() -> None:
    """As many labels as the text has tokens, a number for each: the last token is asked, which feels the infix."""
    ids = tiny.ids()
    config = tiny.configs()["llama"]
    config.num_labels, config.problem_type, config.pad_token_id = ids.shape[1], "multi_label_classification", 0
    model = LlamaForSequenceClassification(config).eval()
    with ts.attach(model, ts.Infix(length=2)):
        model(input_ids=ids, labels=torch.ones(ids.shape))


def test_a_soft_prompt_of_words_that_are_none_is_refused() -> None:
    model, tokenizer = tiny.make("gpt2"), tiny.tokenizer()
    for init, text, message in (("text", "  ", "needs text="), ("labels", "w4//w5", "a word between the '/'")):
        with pytest.raises(ts.UserError, match=message):
            ts.attach(model, ts.Soft(length=3, init_from=init, text=text), tokenizer=tokenizer)


@pytest.mark.parametrize("arm", ["soft:length=3", "text:text=w5 w6 w7"])
def test_token_types_of_the_text_reach_its_embeddings_behind_a_context(arm: str) -> None:
    """The sum that BERT's embeddings are, written out: word, position behind the context, and the type given."""
    model = tiny.make("bert")
    artifacts = tiny.away(model, arm, 0)
    ids, types = tiny.ids(2, 7), torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 0, 0, 1, 0, 1, 1]])
    own = model.base_model.embeddings
    seen: list[torch.Tensor] = []
    handle = own.register_forward_hook(lambda _module, _args, output: seen.append(output))
    with ts.attach(model, *artifacts, tokenizer=tiny.tokenizer()), torch.no_grad():
        model(input_ids=ids, token_type_ids=types)
    handle.remove()
    positions = own.position_embeddings.weight[3 : 3 + 7]
    wanted = own.LayerNorm(own.word_embeddings.weight[ids] + positions + own.token_type_embeddings.weight[types])
    torch.testing.assert_close(seen[-1][:, 3:], wanted, rtol=0, atol=1e-12)
    other = own.LayerNorm(own.word_embeddings.weight[ids] + positions + own.token_type_embeddings.weight[0])
    assert (wanted - other).abs().max() > 1e-3  # the types tell


def test_positions_that_begin_as_zeros_learn_alike_and_those_of_noise_do_not() -> None:
    """Nothing tells equal keys and values without positions apart, so their gradients are equal too."""
    model = tiny.make("llama")
    for start, apart in (("zero", False), ("noise", True)):
        with ts.attach(model, ts.Prefix(length=4, init_from=start)) as tuned:
            tuned.train()
            optimizer = torch.optim.AdamW(tuned.parameters(), lr=0.1)
            for _ in range(3):
                tiny.output(model, tiny.batch(model)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            moved = [one.detach() for one in tuned.parameters()]
            assert max(one.abs().max() for one in moved) > 0.1
            assert any((one - one[:, :1]).abs().max() > 1e-6 for one in moved) is apart


@pytest.mark.parametrize("spec", [ts.Infix(length=200), ts.Prefix(length=200, init_from="noise")], ids=str)
def test_what_begins_as_noise_is_at_the_scale_of_the_model_s_own_keys_and_values(spec: Any) -> None:
    model = tiny.make("llama")
    (artifact,) = initialised(model, [spec], None, 0)
    with torch.no_grad():
        cache = model(tiny.ids(8, 20), use_cache=True).past_key_values
    for index, layer in enumerate(cache.layers):
        for which, own in (("key", layer.keys), ("value", layer.values)):
            begun = artifact.tensors[f"decoder.{index}.self.{which}"]
            assert float(begun.std() / own.std()) == pytest.approx(1, abs=0.2), (index, which)


def test_a_prefix_s_network_begins_as_torch_begins_its_layers() -> None:
    """nn.Embedding: N(0, 1); nn.Linear: weights uniform within one over the root of what enters; biases here 0."""
    model = tiny.make("gpt2")
    (artifact,) = initialised(model, [ts.Prefix(length=40, mlp=50)], None, 0)
    width = model.config.hidden_size
    for name, value in artifact.tensors.items():
        if name.endswith("embedding"):
            assert float(value.std()) == pytest.approx(1, abs=0.1)
        elif name.endswith("_bias"):
            assert not value.any()
        else:
            edge = (width if name.endswith(".down") else 50) ** -0.5
            assert 0.95 * edge < value.abs().max() <= edge
