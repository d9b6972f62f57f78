"""A context is tried on a small twin before it is attached, by what a short text on the model does not show."""

from contextlib import nullcontext
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from odd_families import CONFIGS, model, text
from unlisted import UNMAPPED, unlisted
from zoo import ZOO, zoo

import tunescope as ts
from tunescope.attachment import context_keys, embeddings, exactness, proof
from tunescope.attachment.attention import context, function
from tunescope.attachment.attention.twin import twin, twin_config
from tunescope.attachment.ways_to_read import each, ways
from tunescope.errors import Note, UserError
from tunescope.models import positions
from tunescope.models.family import family_names, find_family

DECODERS = [name for name in family_names() if find_family(name).kind == "decoder"]


@pytest.mark.parametrize("family", [*DECODERS, "phi3", "stablelm", "olmo", "nemotron", "llama4_text", "ctrl"])
def test_nothing_differs_on_the_twin_of_a_family_whose_contexts_are_exact(family: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(proof, "_KNOWN", {})
    network = tiny.make(family) if family in DECODERS else unlisted(family) if family in UNMAPPED else model(family)
    state, made, inner = torch.random.get_rng_state(), [], proof.tried
    monkeypatch.setattr(proof, "tried", lambda small: made.append(small) or inner(small))
    assert proof.differences(network) == proof.Differences()
    (small,) = made
    assert set(proof.right_ways(small, *rows_of(small))) == set(ways(small))
    assert torch.equal(torch.random.get_rng_state(), state)


@torch.no_grad()
def rows_of(small: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    rows = [tiny.ids(1, 11)[0] % 64, tiny.ids(1, 7)[0] % 64]
    return rows, each(small, rows, True)


def test_a_twin_is_narrow_and_has_a_layer_of_each_type() -> None:
    config = tf.Gemma2Config(vocab_size=256_000)
    with torch.device("meta"):
        network = tf.Gemma2ForCausalLM(config)
    small = twin(network, twin_config(config))
    assert small.config.layer_types == ["sliding_attention", "full_attention"]
    assert small.config.sliding_window == 4 and small.config.vocab_size == 64 and small.dtype == torch.float64
    assert sum(value.numel() for value in small.parameters()) < 3e6
    assert (config.vocab_size, config.sliding_window) == (256_000, 4096)


def test_gemma4_is_refused_in_float32_too_where_the_words_alone_would_pass() -> None:
    network = model("gemma4_text").float()
    with pytest.raises(ts.UserError, match=r"in family 'gemma4_text' text put .*its own code fails \(Run"):
        ts.attach(network, ts.Soft(length=2))


def columns(_mask: Any, seen: int, length: int, device: Any) -> torch.Tensor:
    return torch.arange(seen, seen + length, device=device)[None]


def written(inner: Any) -> Any:
    return lambda model, rows, *given: inner(model, rows.mul_(1.5), *given)


FAULTS = {
    "a window that hides no context": ("mistral", context, "_in_window", lambda _: lambda *_: None, "longer than the"),
    "positions that count padding": ("gpt2", positions, "text_positions", lambda _: columns, "padded on the left"),
    "a past that is not counted": ("llama", positions, "seen_by", lambda _: lambda _: 0, "read in two calls"),
    "a write in place": ("llama", context_keys, "run_tokens", written, "written into|longer than the windows"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_is_refused_in_one_line(fault: str, monkeypatch: Any) -> None:
    family, where, name, broken, message = FAULTS[fault]
    network = tiny.make(family)
    if family == "mistral":
        network.config.sliding_window = 64  # as far as a short text sees, there is none
        for layer in network.model.layers:
            layer.self_attn.sliding_window = 64
    monkeypatch.setattr(proof, "_KNOWN", {})
    monkeypatch.setattr(where, name, broken(getattr(where, name)))
    with pytest.raises(
        ts.UserError, match=f"in family '{family}' text put in front .*({message}).* Use a prefix"
    ) as caught:
        ts.attach(network, text())
    assert "\n" not in str(caught.value)


def test_the_twins_of_equal_models_are_one(monkeypatch: Any) -> None:
    monkeypatch.setattr(proof, "_KNOWN", {})
    for _ in range(2):
        with ts.attach(tiny.make("llama"), ts.Soft(length=2)):
            pass
    assert len(proof._KNOWN) == 1
    assert set(CONFIGS) >= {"gemma4_text", "llama4_text"}


FREE_FAULTS = {
    "positions that count padding": ("llama", positions, "text_positions", lambda _: columns, "padded on the left"),
    "a mask that is lost": ("gpt2", function, "_joined_mask", lambda _: lambda *_: None, "padded on the right"),
    "a choice of keys that is lost": (
        "deepseek_v32",
        function,
        "_chosen",
        lambda _: lambda mask, *_: mask,
        "gets something that tunescope does not know",
    ),
}


@pytest.mark.parametrize("fault", FREE_FAULTS)
def test_keys_and_values_that_do_not_come_out_right_are_refused_in_one_line(fault: str, monkeypatch: Any) -> None:
    family, where, name, broken, message = FREE_FAULTS[fault]
    network = zoo(family) if family in ZOO else tiny.make(family)
    monkeypatch.setattr(proof, "_KNOWN", {})
    monkeypatch.setattr(function, "FEW", 0.0)  # a short text on torch's kernel too
    monkeypatch.setattr(where, name, broken(getattr(where, name)))
    said = f"in family '{family}' keys and values before the text do not come out right: .*{message}.* Use LoRA"
    with pytest.raises(ts.UserError, match=said) as caught:
        ts.attach(network, ts.Prefix(length=2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["deepseek_v32", "llama4_text", "qwen3_next"])
def test_all_ways_to_read_are_tried_with_keys_and_values_in_front(family: str, monkeypatch: Any) -> None:
    network = zoo(family)
    monkeypatch.setattr(proof, "_KNOWN", {})
    made, inner = [], proof.tried
    monkeypatch.setattr(proof, "tried", lambda small: made.append(small) or inner(small))
    assert proof.differences(network).of_free is None
    (small,) = made
    right = set(proof.right_ways(small, *rows_of(small)))
    by_column = family in ("deepseek_v32", "llama4_text")  # the bare model itself counts padding
    missing = {"a row padded on the left differs from the row alone"} if by_column else set()
    assert right == set(ways(small)) - missing


@pytest.mark.parametrize("family", ["falcon-alibi", "codegen", "zamba", "zamba2", "t5gemma"])
def test_a_twin_keeps_what_its_family_cannot_do_without(family: str, monkeypatch: Any) -> None:
    """Another attention, heads by fours, tied layers, widths that are multiples, a config for each stack."""
    network = zoo(family)
    monkeypatch.setattr(proof, "_KNOWN", {})
    found = proof.differences(network)
    assert (found.untried_words, found.untried_free, found.of_free) == (None, None, None)
    small = twin(network, twin_config(network.config))
    assert set(proof.right_ways(small, *rows_of(small))) == set(ways(small))


def test_a_vocabulary_or_a_room_as_large_as_the_width_is_no_width() -> None:
    """As of GPT-2 medium, whose 1,024 positions are as many as its states are wide."""
    told = twin_config(tf.GPT2Config(vocab_size=1024, n_embd=1024, n_positions=1024, n_head=16))
    assert told is not None
    assert (told["vocab_size"], told["n_positions"], told["n_embd"]) == (64, 1024, 128)


HEADS_APART = {
    "flan-t5-small": (tf.T5ForConditionalGeneration, tf.T5Config(d_model=512, num_heads=6, d_kv=64, num_layers=8)),
    "GLM-4.5": (tf.Glm4MoeForCausalLM, tf.Glm4MoeConfig(num_hidden_layers=2, head_dim=128)),
}


@pytest.mark.parametrize("name", HEADS_APART)
def test_a_width_that_is_no_multiple_of_the_heads_has_a_twin_where_their_size_is_told(name: str) -> None:
    kind, config = HEADS_APART[name]
    assert config.hidden_size % config.num_attention_heads
    with torch.device("meta"):
        network = kind(config)
    assert proof.differences(network) == proof.Differences()
    told = twin_config(config)
    assert told is not None and told.get("d_kv", told.get("head_dim")) == (config.head_dim)


def test_layers_that_a_config_names_by_number_are_those_that_are_kept() -> None:
    with torch.device("meta"):
        network = tf.Zamba2ForCausalLM(tf.Zamba2Config())
    assert network.config.hybrid_layer_ids[:2] == [6, 12]
    told = twin_config(network.config)
    assert told is not None and told["hybrid_layer_ids"] == [1, 2]
    assert proof.differences(network).untried_free is None


def failing(*_: Any) -> Any:
    raise RuntimeError("no such layer")


def infinite(model: Any, rows: Any, _told: bool) -> Any:
    return [torch.full((len(one), 2), torch.inf) for one in rows]


UNTRIED = {
    "no config": ("twin_config", lambda _: None, "its configuration does not say how to make a small one"),
    "a twin that fails": ("twin", failing, r"cannot be made or run \(RuntimeError: no such layer\)"),
    "no numbers": ("each", infinite, "gives numbers that are not finite"),
    "no numbers behind words": (
        "joined",
        lambda _model, front, row: torch.full((len(row), 2), torch.nan),
        "gives numbers that are not finite",
    ),
}


@pytest.mark.parametrize("spec", [ts.Prefix(length=2), ts.Soft(length=2)])
@pytest.mark.parametrize("what", UNTRIED)
def test_a_proof_that_cannot_be_made_is_told_once_and_only_of_contexts(what: str, spec: Any, monkeypatch: Any) -> None:
    name, broken, message = UNTRIED[what]
    monkeypatch.setattr(proof, "_KNOWN", {})
    monkeypatch.setattr(proof, name, broken)
    monkeypatch.setattr(exactness, "_TOLD", set())
    network = tiny.make("llama")
    ts.attach(network, ts.LoRA(rank=2)).detach()
    is_tried = what == "no numbers behind words" and isinstance(spec, ts.Prefix)
    said = f"in family 'llama' with padding, windows and texts read in several calls was not tried: .*{message}"
    with nullcontext() if is_tried else pytest.warns(Note, match=said):
        ts.attach(network, spec).detach()
    ts.attach(network, spec).detach()


def test_a_proof_that_was_cut_short_is_made_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(proof, "_KNOWN", {})
    network = tiny.make("llama")

    def cut(_small: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as within:
        within.setattr(proof, "tried", cut)
        with pytest.raises(KeyboardInterrupt):
            proof.differences(network)
    monkeypatch.setattr(proof, "tried", lambda _small: proof.Differences("wrong", "wrong"))
    assert proof.differences(network) == proof.Differences("wrong", "wrong")


TEXT_KINDS = {"bert": "left", "modernbert": "left", "roberta": "left", "t5": "left", "bart": "right", "longt5": "left"}


@pytest.mark.parametrize("family", TEXT_KINDS)
def test_nothing_differs_on_the_twin_of_an_encoder_or_encoder_decoder(family: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(proof, "_KNOWN", {})
    network = zoo(family) if family in ZOO else tiny.make(family)
    told = twin_config(network.config)
    assert told is not None
    small = twin(network, told)
    with torch.no_grad():
        right = proof.right_ways(small, *rows_of(small))
    assert any("padded on the left" in way for way in right) == (TEXT_KINDS[family] == "left")
    assert any("padded on the right" in way for way in right)
    assert proof.tried(small) == proof.Differences() == proof.differences(network)
    assert len(proof._KNOWN) == 1


def unmasked(mask: torch.Tensor, by: int, _filled: Any = None) -> torch.Tensor:
    return torch.ones(len(mask), mask.shape[1] + by, dtype=mask.dtype)


ENCODER_FAULTS = {
    "padding that is seen": ("bart", embeddings, "widened", lambda _: unmasked, "padded on the right"),
    "positions that count padding": ("bert", embeddings, "text_positions", lambda _: columns, "padded on the left"),
    "words a window away from the text": (
        "modernbert",
        embeddings,
        "_behind_padding",
        lambda _: lambda mask, n, _filled: torch.arange(mask.shape[1] + n).expand(len(mask), -1),
        "padded on the left",
    ),
}


@pytest.mark.parametrize("fault", ENCODER_FAULTS)
def test_words_in_front_of_an_encoder_that_come_out_wrong_are_refused(fault: str, monkeypatch: Any) -> None:
    family, where, name, broken, message = ENCODER_FAULTS[fault]
    network = zoo(family) if family in ZOO else tiny.make(family)
    monkeypatch.setattr(proof, "_KNOWN", {})
    monkeypatch.setattr(where, name, broken(getattr(where, name)))
    with pytest.raises(ts.UserError, match=f"in family '{family}' text put in front .*{message}"):
        ts.attach(network, ts.Soft(length=2))


def test_keys_and_values_in_front_of_an_encoder_that_come_out_wrong_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(proof, "_KNOWN", {})
    monkeypatch.setattr(function, "FEW", 0.0)
    monkeypatch.setattr(function, "_joined_mask", lambda *_: None)
    with pytest.raises(ts.UserError, match=r"in family 'bert' keys and values .*padded on the right"):
        ts.attach(tiny.make("bert"), ts.Prefix(length=2))


@pytest.mark.parametrize(("noisy", "is_refused"), [(15, False), (100, True)])
def test_words_are_tried_on_others_where_the_first_are_all_rounding(
    noisy: int, is_refused: bool, monkeypatch: Any
) -> None:
    """As in SmolLM2 in bfloat16 behind its special tokens, which were never trained."""
    states = exactness._states

    def rounded(model: Any, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        found = states(model, ids, *rest)
        return found + 0.4 * torch.randn_like(found) if ids[-1] < noisy else found

    monkeypatch.setattr(exactness, "_states", rounded)
    monkeypatch.setattr(exactness, "_GOLDEN", 0.0101)  # of a hundred tokens the first twenty, in order
    with pytest.raises(UserError, match="some layers do not see it") if is_refused else nullcontext():
        ts.attach(tiny.make("llama"), ts.Soft(length=2)).detach()
