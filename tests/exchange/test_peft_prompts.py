"""Prefixes and soft prompts between peft and here, whole outputs against peft's own."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import peft
import peftly
import pytest
import tiny
import torch
import transformers as tf
from safetensors.torch import load_file
from torch import Tensor
from zoo import zoo

import tunescope as ts
from tunescope.attachment.attention.reach import reached
from tunescope.attachment.initial_artifacts import initialised
from tunescope.exchange import convert
from tunescope.exchange.peft import prompts as prompts_file
from tunescope.exchange.peft import prompts_out
from tunescope.exchange.peft.config import CONFIG, TENSORS
from tunescope.methods.artifact import Artifact, LayerShape

PREFIXED = ["gpt2", "opt", "llama", "qwen2", "qwen3", "phi", "bert", "roberta"]
PROMPTED = [*PREFIXED, "gpt_neox", "mistral", "gemma2", "t5", "bart"]
ROTARY = ["llama", "qwen2", "qwen3", "phi", "gpt_neox"]


def attached(model: Any, artifacts: Any, given: dict[str, Tensor]) -> Tensor:
    with ts.attach(model, *artifacts):
        return peftly.outputs(model, given)


def imported(model: Any, folder: Path) -> Any:
    return convert.read(folder, form="peft", model=model)


def drawn(model: Any, *specs: Any, seed: int = 7) -> list[Artifact]:
    draw = torch.Generator().manual_seed(seed)
    return [
        Artifact(
            made.spec, {name: torch.randn(v.shape, generator=draw, dtype=v.dtype) for name, v in made.tensors.items()}
        )
        for made in initialised(model, specs, None, 0)
    ]


def assert_same(model: Any, artifacts: Any, made: Any, tolerance: float = 1e-12) -> None:
    peftly.assert_own_memory(artifacts)
    for padding in ("none", "right"):
        given = tiny.batch(model, padding)
        expected, got = peftly.outputs(made, given), attached(model, artifacts, given)
        torch.testing.assert_close(tiny.real(given, got), tiny.real(given, expected), rtol=0, atol=tolerance)
        assert (tiny.real(given, expected) - tiny.real(given, peftly.outputs(model, given))).abs().max() > 1e-3


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("family", PREFIXED)
def test_peft_s_prefix_gives_peft_s_outputs(family: str, projected: bool, tmp_path: Path) -> None:
    model = tiny.make(family)
    config = peftly.prefix(model, 5, prefix_projection=projected, encoder_hidden_size=11)
    folder = peftly.written(peftly.wrapped(model, config), tmp_path / "peft")
    found = imported(model, folder)
    (artifact,) = found.artifacts
    assert artifact.spec == ts.Prefix(length=5, positions="after")
    assert "the text's positions begin at 5, as in peft: positions='after'" in found.notes
    assert_same(model, found.artifacts, peftly.loaded(model, folder))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_peft_s_cartridge_is_a_prefix_some_rows_of_which_it_held_fixed(family: str, tmp_path: Path) -> None:
    """In float32, in which peft has it, to a millionth of the largest output."""
    model = tiny.make(family, dtype=torch.float32)
    for frozen in (0, 2):
        config = peft.CartridgeConfig(task_type="CAUSAL_LM", num_virtual_tokens=5, num_frozen_tokens=frozen)
        made = peftly.wrapped(model, config)
        found = imported(model, peftly.written(made, tmp_path / str(frozen)))
        assert [one.spec for one in found.artifacts] == [ts.Prefix(length=5, positions="after")]
        told = "peft held its first 2 rows fixed in training: tuned further here, all 5 are tuned"
        assert (told in found.notes) is bool(frozen)
        assert_same(model, found.artifacts, made, tolerance=2e-6)


@pytest.mark.parametrize("method", ["prefix", "prompt"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "opt", "bert"])
def test_prompts_of_both_kinds_give_peft_s_outputs_in_float32(family: str, method: str, tmp_path: Path) -> None:
    """To a millionth of the largest output, which is between 2 and 4."""
    model = tiny.make(family, dtype=torch.float32)
    made = peftly.wrapped(model, getattr(peftly, method)(model))
    found = imported(model, peftly.written(made, tmp_path / "peft"))
    assert_same(model, found.artifacts, made, tolerance=2e-6)


def test_an_imported_prefix_generates_what_peft_generates(tmp_path: Path) -> None:
    for family in ("gpt2", "opt", "qwen2"):
        model = tiny.make(family)
        folder = peftly.written(peftly.wrapped(model, peftly.prefix(model)), tmp_path / family)
        asked = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones(2, 7).long()}
        with peftly.quiet(), torch.no_grad():
            expected = peftly.loaded(model, folder).generate(input_ids=tiny.ids(), **asked)
            with ts.attach(model, *imported(model, folder).artifacts):
                assert torch.equal(model.generate(input_ids=tiny.ids(), **asked), expected)


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_a_window_is_told_and_the_two_are_the_same_within_it(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)  # a window of 5
    made = peftly.wrapped(model, peftly.prefix(model, 2))
    found = imported(model, peftly.written(made, tmp_path / "peft"))
    assert any("the same for texts of up to 3 tokens" in note for note in found.notes)
    short, long = {"input_ids": tiny.ids(length=3)}, {"input_ids": tiny.ids(length=9)}
    got, expected = attached(model, found.artifacts, short), peftly.outputs(made, short)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    assert (attached(model, found.artifacts, long) - peftly.outputs(made, long)).abs().max() > 1e-6


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_prefix_of_an_encoder_decoder_is_refused_with_what_peft_does(family: str, tmp_path: Path) -> None:
    model = tiny.make("t5")
    if family == "bart":  # peft takes one number of heads for both stacks
        config = tf.BartConfig(**{**tiny.BART_LIKE, "decoder_attention_heads": 3})
        model = tiny.build(tf.AutoModelForSeq2SeqLM, config)
    fields = {"token_dim": 18, "num_attention_heads": 3} if family == "t5" else {}
    folder = peftly.written(peftly.wrapped(model, peftly.prefix(model, **fields)), tmp_path / "peft")
    with pytest.raises(
        ts.UserError, match=r"layers i and i \+ L/2 the same keys, so half .* was never trained; .* keep it in peft"
    ):
        imported(model, folder)


def prompts(model: Any, method: str) -> Any:
    if method == "prompt":
        return peftly.prompt(model, 4)
    return peft.PromptEncoderConfig(
        task_type=peftly.prompt(model).task_type,
        num_virtual_tokens=4,
        encoder_reparameterization_type=method.upper(),
        encoder_hidden_size=9,
        encoder_dropout=0.0,
    )


@pytest.mark.parametrize("method", ["prompt", "mlp", "lstm"])
@pytest.mark.parametrize("family", PROMPTED)
def test_peft_s_prompts_give_peft_s_outputs(family: str, method: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    folder = peftly.written(peftly.wrapped(model, prompts(model, method)), tmp_path / "peft")
    found = imported(model, folder)
    (artifact,) = found.artifacts
    assert artifact.spec == ts.Soft(length=4)
    doubled = load_file(folder / TENSORS)["prompt_embeddings"].shape[0] == 8
    assert doubled == any(
        "stores 8 rows for an encoder-decoder and uses 4: the others, never" in n for n in found.notes
    )
    assert_same(model, found.artifacts, peftly.loaded(model, folder))


@pytest.mark.parametrize("family", [*PREFIXED, "gpt_neox"])
def test_a_prefix_that_moves_the_text_is_written_as_it_is(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    artifacts = drawn(model, ts.Prefix(length=4, positions="after", mlp=6))
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    assert_same(model, artifacts, peftly.loaded(model, tmp_path / "out"))


@pytest.mark.parametrize("family", ROTARY)
def test_with_rotary_positions_a_prefix_of_unmoved_text_is_written_with_turned_keys(
    family: str, tmp_path: Path
) -> None:
    model = tiny.make(family)
    artifacts = drawn(model, ts.Prefix(length=4))
    with tiny.Float64():  # transformers turns positions in float32, whatever the model's type
        done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < 1e-12
    assert (
        "peft begins the text's positions at 4: the keys were turned as far, so every score is as before" in done.notes
    )
    assert_same(model, artifacts, peftly.loaded(model, tmp_path / "out"))
    (again,) = imported(model, tmp_path / "out").artifacts
    key = "decoder.0.self.key"
    assert (again.tensors[key] - artifacts[0].tensors[key]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("dtype", "rounding"),
    [(torch.float32, 1e-5), (torch.float64, 2e-6)],  # angles are in float32 in both
)
def test_turned_keys_pass_the_check_with_transformers_own_rotations_too(
    dtype: torch.dtype, rounding: float, tmp_path: Path
) -> None:
    model = tiny.make("llama", dtype=dtype)
    artifacts = drawn(model, ts.Prefix(length=4))
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert done.difference is not None and done.difference < rounding
    assert_same(model, artifacts, peftly.loaded(model, tmp_path / "out"), tolerance=rounding)


@pytest.mark.parametrize("family", ["gpt2", "opt", "bert", "llama with dynamic frequencies", "olmo, not mapped"])
def test_elsewhere_a_prefix_of_unmoved_text_is_refused(family: str, tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    others = {
        "llama with dynamic frequencies": lambda: tf.LlamaConfig(**tiny.LLAMA_LIKE, rope_parameters=rope),
        "olmo, not mapped": lambda: tf.OlmoConfig(**tiny.LLAMA_LIKE),
    }
    model = tiny.build(tf.AutoModelForCausalLM, others[family]()) if family in others else tiny.make(family)
    with pytest.raises(ts.UserError, match=r"the same map only for rotary .* For peft tune with positions='after'"):
        convert.export(tmp_path / "out", drawn(model, ts.Prefix(length=4)), to="peft", model=model)
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_of_an_encoder_decoder_is_not_written(tmp_path: Path) -> None:
    model = tiny.make("t5")
    with pytest.raises(ts.UserError, match="one set of keys for two decoder layers and none for the encoder"):
        convert.export(tmp_path / "out", drawn(model, ts.Prefix(length=4)), to="peft", model=model)


@pytest.mark.parametrize("shape", [(1, 6, 6), (2, 6, 8)])
def test_a_prefix_of_layers_that_are_not_alike_is_not_written(
    shape: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.make("llama")
    first, second = reached(model)
    other = dataclasses.replace(second, shape=LayerShape(*shape))
    monkeypatch.setattr(prompts_out, "reached", lambda model: (other, first))
    artifact = drawn(model, ts.Prefix(length=4, positions="after"))
    with pytest.raises(ts.UserError, match="one shape for all layers, and this model's differ"):
        convert.export(tmp_path / "out", artifact, to="peft", model=model)


def test_the_layout_is_peft_s(tmp_path: Path) -> None:
    """Row j is (2 L, key heads, d); entry 2 i is the key of layer i and 2 i + 1 its value."""
    model = tiny.make("qwen3")
    (artifact,) = drawn(model, ts.Prefix(length=3, positions="after"))
    convert.export(tmp_path / "out", artifact, to="peft", model=model)
    rows = load_file(tmp_path / "out" / TENSORS)["prompt_embeddings"].view(3, 4, 2, 8)
    for layer in range(2):
        for offset, which in enumerate(("key", "value")):
            own = artifact.tensors[f"decoder.{layer}.self.{which}"]
            assert torch.equal(rows[:, 2 * layer + offset].transpose(0, 1), own)
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    assert config == {
        "base_model_name_or_path": None,
        "inference_mode": True,
        "num_attention_heads": 2,
        "num_layers": 2,
        "num_transformer_submodules": 1,
        "num_virtual_tokens": 3,
        "peft_type": "PREFIX_TUNING",
        "prefix_projection": False,
        "task_type": "CAUSAL_LM",
        "token_dim": 16,
    }


@pytest.mark.parametrize("family", PROMPTED)
def test_soft_prompts_are_written_in_their_order(family: str, tmp_path: Path) -> None:
    model = tiny.make(family)
    artifacts = drawn(model, ts.Soft(length=3), ts.Soft(length=2))
    done = convert.export(tmp_path / "out", artifacts, to="peft", model=model)
    assert "2 soft prompts became one of 5 rows" in done.notes
    assert done.difference is not None and done.difference < 1e-12
    assert_same(model, artifacts, peftly.loaded(model, tmp_path / "out"))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_what_peft_makes_of_padding_on_the_left_is_told_of_a_soft_prompt(family: str, tmp_path: Path) -> None:
    """transformers' generate is the judge: a row alone, without padding, has one continuation in peft and here."""
    model, more = tiny.make(family), {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    given = tiny.batch(model, "left")
    short = {"input_ids": given["input_ids"][1:][:, given["attention_mask"][1].bool()]}
    for spec in (ts.Soft(length=3), ts.Prefix(length=3, positions="after")):
        artifacts, folder = drawn(model, spec), tmp_path / type(spec).__name__
        notes = convert.export(folder, artifacts, to="peft", model=model).notes
        with ts.attach(model, *artifacts):
            ours = model.generate(**given, **more)[1, -8:]
        with peftly.quiet():  # peft says that it leaves positions out
            theirs = peft.PeftModel.from_pretrained(tiny.make(family), folder).eval().double()
            alone, padded = theirs.generate(**short, **more)[0, -8:], theirs.generate(**given, **more)[1, -8:]
        assert torch.equal(ours, alone)
        assert torch.equal(padded, alone) is (prompts_out.LEFT not in notes)
        assert (prompts_out.LEFT in notes) is isinstance(spec, ts.Soft)


def test_a_lowered_soft_prompt_is_written_as_the_prefix_that_it_is(tmp_path: Path) -> None:
    model = tiny.make("llama")
    (soft,) = drawn(model, ts.Soft(length=3))
    with tiny.Float64():
        lowered = ts.lower(model, soft)
    convert.export(tmp_path / "out", lowered, to="peft", model=model)
    assert_same(model, [soft], peftly.loaded(model, tmp_path / "out"))


@pytest.mark.parametrize("name", ["bloom", "falcon-alibi"])
def test_where_scores_are_biased_by_distance_a_prefix_is_neither_read_nor_written(name: str, tmp_path: Path) -> None:
    model = zoo(name)
    config, n_layers = {"num_virtual_tokens": 2, "num_layers": 2, "num_attention_heads": 3, "token_dim": 24}, 2
    with pytest.raises(ts.UserError, match=r"biases scores by distance .*: peft's prefix stands at distances"):
        prompts_file.read_prefix(config, {"prompt_embeddings": torch.zeros(2, 2 * n_layers * 24)}, model)
    (prefix,) = drawn(model, ts.Prefix(length=2))
    with pytest.raises(ts.UserError, match="biases scores by distance"):
        prompts_out.write_prefix(prefix, model)


def test_the_window_of_gpt_neo_s_local_layers_is_told() -> None:
    told = prompts_file.window_note(zoo("gpt_neo"), 2)
    assert len(told) == 1 and "the two are the same for texts of up to" in told[0]


@pytest.mark.parametrize("family", ["modernbert", "eurobert", "gemma3n_text", "doge", "qwen3_next", "jamba", "bamba"])
def test_a_family_that_makes_something_else_of_past_keys_has_no_prefix_of_peft_s(family: str, tmp_path: Path) -> None:
    """Without effect, at other positions, with shared keys or a mask of its own; or it cannot go on from keys alone."""
    model = zoo(family)
    (artifact,) = tiny.away(model, "prefix:length=2,positions=after")
    message = "takes none: there it has no effect|cannot go on from keys and values alone|something else of past keys"
    with pytest.raises(ts.UserError, match=message):
        convert.export(tmp_path / "out", artifact, to="peft", model=model)
    assert not (tmp_path / "out").exists()
