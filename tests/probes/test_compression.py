"""Compressed demonstrations against transformers' own eager attention and a literal attention in plain loops."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tiny
import torch
from reference import kept as reference
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import tunescope as ts
from tunescope.attachment.initial_artifacts import initialised
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.anchors import Anchors
from tunescope.methods.text_form import parse, show
from tunescope.models.family import family_names, find_family
from tunescope.probes.anchors.compression import compress, kept, positions_of, random_sets, read, start_of, text_anchor
from tunescope.tasks.prompts.demonstrations import Demonstration
from tunescope.tasks.prompts.spans import Spans, spans
from tunescope.trial.budget import count

DECODERS = [name for name in family_names() if find_family(name).kind == "decoder"]
OTHERS = [name for name in family_names() if find_family(name).kind != "decoder"]
STORIES = Path(__file__).parents[3] / "shared/models/stories260K"
LENGTH, KEEP = 12, (1, 4, 5, 9)  # longer than the tiny models' window of 5
BEGINS = {"original": LENGTH, "packed": 10, "zero": 0}
GREEDY: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def demonstrations(length: int = LENGTH) -> Spans:
    """Random tokens; which is what plays no part."""
    return Spans(tuple(tiny.ids(1, length, seed=9)[0].tolist()), (), ())


def rows_of(given: dict[str, Tensor]) -> list[Tensor]:
    mask = given.get("attention_mask", torch.ones_like(given["input_ids"]))
    return [row[keep.bool()] for row, keep in zip(given["input_ids"], mask, strict=True)]


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def all_of(model: Any, length: int = LENGTH, **fields: Any) -> Artifact:
    return compress(model, tiny.tokenizer(), demonstrations(length), range(length), **fields)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", DECODERS)
def test_keeping_all_positions_is_the_whole_prompt(family: str, padding: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    before = torch.tensor(demonstrations().ids)
    given = {name: value for name, value in tiny.batch(model, padding).items() if name != "position_ids"}
    with torch.no_grad(), tiny.Float64():
        artifact = all_of(model)
        for use_cache in (True, False):
            with ts.attach(model, artifact) as tuned:
                got = model(**given, use_cache=use_cache).logits
            assert tuned.positions == LENGTH
            for row, alone in enumerate(rows_of(given)):
                whole = eager(input_ids=torch.cat([before, alone])[None]).logits[0, LENGTH:]
                close(got[row][given["attention_mask"][row].bool()] if padding != "none" else got[row], whole)


@pytest.mark.parametrize("positions", BEGINS)
@pytest.mark.parametrize("family", DECODERS)
def test_keeping_some_is_attention_over_the_kept_columns_alone(family: str, positions: Any) -> None:
    model = tiny.make(family)
    given = tiny.batch(model, "left")
    whole = torch.tensor(demonstrations().ids)
    with torch.no_grad(), tiny.Float64():
        artifact = compress(model, tiny.tokenizer(), demonstrations(), KEEP, positions=positions)
        with ts.attach(model, artifact) as tuned:
            got = model(**given).logits
            first = model(input_ids=given["input_ids"][:1, :4], use_cache=True)
            more = {"input_ids": given["input_ids"][:1, 4:], "past_key_values": first.past_key_values}
            in_steps = torch.cat([first.logits, model(**more, use_cache=True).logits], 1)
        for row, alone in enumerate(rows_of(given)):
            expected = reference.logits(model, whole, alone, KEEP, BEGINS[positions])
            close(got[row][given["attention_mask"][row].bool()], expected)
    close(in_steps[0], got[0])
    assert tuned.positions == BEGINS[positions]
    assert artifact.tensors["decoder.0.self.key"].shape[1] == len(KEEP)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma2"])
def test_it_generates_what_the_whole_prompt_generates_padded_or_not_cached_or_not(family: str) -> None:
    model, eager = tiny.make(family), tiny.make(family, attention="eager")
    before = torch.tensor(demonstrations().ids)
    padded = {name: value for name, value in tiny.batch(model, "left").items() if name != "position_ids"}
    with torch.no_grad():
        expected = [
            eager.generate(
                input_ids=(whole := torch.cat([before, row])[None]), attention_mask=torch.ones_like(whole), **GREEDY
            )[0, whole.shape[1] :].tolist()
            for row in rows_of(padded)
        ]
        with ts.attach(model, all_of(model)):
            for use_cache in (True, False):
                got = model.generate(**padded, **GREEDY, use_cache=use_cache)
                assert [row[7:].tolist() for row in got] == expected


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
def test_it_is_made_under_deltas_and_behind_contexts_and_refused_under_others(family: str, tmp_path: Path) -> None:
    model, other = tiny.make(family), tiny.make(family, seed=1)
    words = Artifact(ts.Text(text="w"), {"ids": tiny.ids(1, 3)[0]})
    (lora,) = initialised(model, [ts.LoRA(rank=2)], None, 0)
    lora.tensors = {name: value + 0.1 for name, value in lora.tensors.items()}
    demos = Artifact(ts.Text(text="w"), {"ids": torch.tensor(demonstrations().ids)})
    given = tiny.batch(model)
    artifact = all_of(model, under=(words, lora))
    with torch.no_grad():
        with ts.attach(model, words, lora, demos) as tuned:
            expected = tiny.real(given, tiny.output(model, given))
        ts.save(tmp_path / "saved", [words, lora, artifact], model=model, tokenizer=tiny.tokenizer())
        loaded = ts.load(tmp_path / "saved")
        for ready in ([words, lora, artifact], loaded):
            with ts.attach(model, *ready, tokenizer=tiny.tokenizer()) as again:
                close(tiny.real(given, tiny.output(model, given)), expected)
    assert again.positions == tuned.positions == 3 + LENGTH
    assert loaded[-1].spec == artifact.spec
    for wrong in ([artifact], [lora, artifact], [words, artifact], [artifact, words, lora]):
        with pytest.raises(ts.UserError, match=r"compressed under other weights .* Compress again: compress\("):
            ts.attach(model, *wrong)
    with pytest.raises(ts.UserError, match="made for another base model"):
        ts.attach(other, *loaded)
    with ts.attach(model, words, lora, artifact) as tuned, pytest.raises(ts.UserError, match="go stale in training"):
        tuned.train()


def test_saved_and_loaded_it_gives_equal_logits(tmp_path: Path) -> None:
    model = tiny.make("llama")
    given = tiny.batch(model)
    artifact = compress(model, tiny.tokenizer(), demonstrations(), KEEP, positions="packed")
    ts.save(tmp_path / "saved", artifact, model=model, tokenizer=tiny.tokenizer())
    (loaded,) = ts.load(tmp_path / "saved")
    assert loaded.spec == artifact.spec == Anchors(keep=KEEP, length=LENGTH, positions="packed")
    with torch.no_grad():
        with ts.attach(model, artifact):
            expected = tiny.output(model, given)
        with ts.attach(model, loaded, tokenizer=tiny.tokenizer()):
            assert torch.equal(tiny.output(model, given), expected)


def test_what_is_typed_is_what_compress_makes() -> None:
    model, tokenizer = tiny.make("llama"), tiny.tokenizer()
    text = "w5 w6 w7 w8 w9"
    typed = Anchors(text=text, length=5, keep=(1, 4))
    assert parse(show((typed,))) == (typed,)
    (made,) = initialised(model, [typed], tokenizer, 0)
    compressed = compress(model, tokenizer, Spans((5, 6, 7, 8, 9), (), ()), (1, 4))
    assert made.fold().spec == compressed.spec
    assert made.in_force == compressed.in_force
    assert made.tensors.keys() == compressed.tensors.keys()
    for name, value in made.tensors.items():
        close(value, compressed.tensors[name])


def test_nothing_of_it_is_trained_and_what_is_kept_counts() -> None:
    model = tiny.make("llama")
    artifact = compress(model, tiny.tokenizer(), demonstrations(), KEEP)
    size = 2 * 2 * 2 * 6 * len(KEEP)  # layers, keys and values, heads of them, width
    assert count(model, [artifact.spec]) == (0, size, size)
    assert sum(value.numel() for value in artifact.tensors.values()) == size
    with ts.attach(model, artifact) as tuned:
        assert tuned.train().parameters() == []
    assert str(artifact.spec) == "Anchors(4 kept of 12, positions='original')"


def solved(tokenizer: Any) -> Spans:
    texts, names = ("w10 w11 w12 w13", "w20 w21 w22", "w50 w51"), ("a", "b", "a")
    words = {"a": "w6 w4", "b": "w5"}
    return spans(
        tokenizer,
        [
            Demonstration(name, "w40 ", text, "\nw41: ", words[name], "\nw42 ")
            for text, name in zip(texts, names, strict=True)
        ],
    )


def words(chosen: Spans, positions: Any) -> list[int]:
    return [chosen.ids[at] for at in positions]


def test_the_rules_keep_what_they_say() -> None:
    found = solved(tiny.tokenizer())
    # a demonstration is: w40, its text, the separator (unknown), its label word, w42
    assert found.of("label") == (6, 7, 14, 20, 21)
    assert positions_of(found, "labels") == (6, 7, 14, 20, 21)
    assert positions_of(found, "anchors") == (0, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 21, 22)
    text = set(found.of("text"))
    drawn = positions_of(found, "random", 3)
    assert set(positions_of(found, "anchors")) - set(found.of("label")) == set(drawn) - text
    for place in found.places:
        assert len(set(drawn) & set(place["text"])) == len(place["label"])
    assert not set(drawn) & set(found.of("label"))


def test_a_start_token_is_formatting_and_no_label() -> None:
    plain = solved(tiny.tokenizer())
    moved = [{part: tuple(at + 1 for at in ats) for part, ats in place.items()} for place in plain.places]
    begun = Spans((1, *plain.ids), tuple(moved), plain.names)
    assert start_of(begun) == (1,) and start_of(plain) == ()
    assert positions_of(begun, "anchors")[0] == 0
    assert positions_of(begun, "labels") == tuple(at + 1 for at in positions_of(plain, "labels"))
    assert 0 in positions_of(begun, "random")


def test_a_text_shorter_than_its_label_word_gives_all_it_has() -> None:
    demos = [
        Demonstration("a", "", "w9", " ", "w7 w4 w5", " w42 "),
        Demonstration("b", "", "w8 w7", " ", "w6", " w42 "),
    ]
    found = spans(tiny.tokenizer(), demos)
    drawn = set(positions_of(found, "random")) & set(found.of("text"))
    assert len(drawn) == 2 and set(found.places[0]["text"]) <= drawn


def test_the_first_position_is_kept_whatever_stands_there() -> None:
    demos = [
        Demonstration("a", "", "w9 w8 w10 w11", " ", "w7 w4", " w42 "),
        Demonstration("b", "", "w3", " ", "w6", ""),
    ]
    found = spans(tiny.tokenizer(), demos)
    assert 0 in found.of("text")
    assert positions_of(found, "anchors")[0] == 0 and 0 not in positions_of(found, "labels")
    for seed in range(9):
        drawn = set(positions_of(found, "random", seed))
        assert 0 in drawn and len(drawn & set(found.places[0]["text"])) == 3  # it, and one for each label token


def test_the_twenty_random_sets_are_independent() -> None:
    """The released code never empties its set, so that later ones hold all earlier ones."""
    found = solved(tiny.tokenizer())
    sets = random_sets(found, seed=4)
    assert len(sets) == 20
    assert {len(one) for one in sets} == {len(positions_of(found, "anchors"))}
    assert not any(set(one) < set(other) for one in sets for other in sets)
    assert len(set(sets)) > 5
    for number in Random(0).sample(range(20), 20):  # in any order, each alone
        assert sets[number] == positions_of(found, "random", 80 + number)
    assert random_sets(found, seed=5) != sets


def test_text_anchor_is_the_same_tokens_read_alone() -> None:
    found, tokenizer = solved(tiny.tokenizer()), tiny.tokenizer()
    artifact = text_anchor(tokenizer, found)
    assert artifact.tensors["ids"].tolist() == words(found, positions_of(found, "anchors"))
    model = tiny.make("gpt2")
    with ts.attach(model, artifact, tokenizer=tokenizer) as tuned:
        assert tuned.positions == 14


def test_one_pass_serves_every_choice_of_positions() -> None:
    model = tiny.make("gpt2")
    whole = read(model, tiny.tokenizer(), demonstrations().ids)
    for keep in (KEEP, (0,), range(LENGTH)):
        one, other = kept(whole, keep), compress(model, tiny.tokenizer(), demonstrations(), keep)
        assert one.spec == other.spec and one.in_force == other.in_force
        assert all(torch.equal(value, other.tensors[name]) for name, value in one.tensors.items())


def test_compressing_is_without_dropout_and_leaves_a_model_in_training_as_it_was() -> None:
    model = tiny.make("llama").train()
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.Sequential(layer.mlp.act_fn, torch.nn.Dropout(0.5)).train()
    model.gradient_checkpointing_enable()
    one, other = (compress(tiny.make("llama"), tiny.tokenizer(), demonstrations(), KEEP), all_of(model))
    assert model.training and model.is_gradient_checkpointing
    close(other.tensors["decoder.1.self.key"][:, KEEP], one.tensors["decoder.1.self.key"])


@pytest.mark.parametrize("family", OTHERS)
def test_what_is_no_decoder_is_refused(family: str) -> None:
    model = tiny.make(family)
    for make in (
        lambda: compress(model, tiny.tokenizer(), demonstrations(), KEEP),
        lambda: ts.attach(model, Anchors(text="w5 w6", length=2, keep=(1,)), tokenizer=tiny.tokenizer()),
    ):
        with pytest.raises(ts.UserError, match=r"cannot be compressed in an encoder.*: its keys look at the text that"):
            make()


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ((), "No position of the demonstrations is kept: name one at least"),
        ((1, 12), "Position 12 is outside of a text of 12 tokens: allowed are 0 to 11"),
        ((-1,), "Position -1 is outside"),
        ((3, 2), "not in ascending order, each once"),
        ((2, 2), "not in ascending order, each once"),
        ("most", "keep='most': allowed are 'anchors', 'labels', 'random', and positions"),
    ],
)
def test_positions_that_cannot_be_kept_are_refused(keep: Any, message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        compress(tiny.make("gpt2"), tiny.tokenizer(), demonstrations(), keep)


def test_demonstrations_longer_than_the_model_are_refused() -> None:
    model = tiny.make("gpt2")
    with pytest.raises(ts.UserError, match=r"have 65 tokens and the model takes 64: give fewer \(--k\) or shorter"):
        all_of(model, 65)
    under = initialised(model, [ts.Soft(length=4)], None, 0)
    with pytest.raises(ts.UserError, match="have 61 tokens and the model takes 60"):
        all_of(model, 61, under=under)
    artifact = all_of(model, 60)
    with ts.attach(model, artifact), pytest.raises(ts.UserError, match="Shorten the text to 4 tokens"):
        model(input_ids=tiny.ids(1, 5))
    packed = replace(artifact, spec=replace(artifact.spec, positions="zero"))
    with ts.attach(model, packed):
        model(input_ids=tiny.ids(1, 5))


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("anchors", "Anchors holds what is kept of demonstrations: make it with compress"),
        ("anchors:keep=1,length=3", r"Anchors needs text=... and the model's tokenizer, or compress\(...\)"),
        ("anchors:text=w5 w6,keep=1,length=3", "the text has 2 tokens, .* type length=2"),
        ("anchors:text=w5 w6,keep=2,length=2", "Position 2 is outside of a text of 2 tokens"),
    ],
)
def test_what_is_typed_and_cannot_be_is_refused(arm: str, message: str) -> None:
    with pytest.raises(ts.UserError, match=message):
        ts.attach(tiny.make("gpt2"), *parse(arm), tokenizer=tiny.tokenizer())


@pytest.mark.skipif(not STORIES.exists(), reason="the pretrained model lies beside the project")
def test_keeping_all_is_the_whole_prompt_in_a_pretrained_llama() -> None:
    tokenizer = AutoTokenizer.from_pretrained(STORIES)
    model = AutoModelForCausalLM.from_pretrained(STORIES, dtype=torch.float64).eval()
    found = spans(
        tokenizer,
        [
            Demonstration("up", "", "Tom was happy and smiled.", "\nMood: ", "good"),
            Demonstration("down", "", "Lily lost her toy and cried.", "\nMood: ", "bad"),
        ],
    )
    assert start_of(found) == (tokenizer.bos_token_id,)
    query = tokenizer("Ben got a big cake.\nMood:", add_special_tokens=False, return_tensors="pt")["input_ids"]
    whole = torch.tensor(found.ids)
    with torch.no_grad(), tiny.Float64():
        expected = model(input_ids=torch.cat([whole, query[0]])[None]).logits[:, len(whole) :]
        with ts.attach(model, compress(model, tokenizer, found, range(len(found.ids)))):
            close(model(input_ids=query).logits, expected)
        keep = positions_of(found, "anchors")
        with ts.attach(model, compress(model, tokenizer, found, keep)):
            got = model(input_ids=query).logits[0]
        close(got, reference.logits(model, whole, query[0], keep, len(whole)))
