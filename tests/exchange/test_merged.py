"""A merged checkpoint, read by transformers alone, computes what the attached model computes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import serving_tools as tools
import tiny
import torch
import transformers as tf
from safetensors import safe_open

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.formats import merged
from tunescope.methods.text_form import parse
from tunescope.models.fingerprint import fingerprint

UNBIASED = ("llama", "mistral", "qwen3", "gemma2", "t5")


def read(family: str, folder: Path) -> Any:
    """By the class that transformers itself takes for the folder."""
    with tools.quiet():
        return (
            tiny.auto_class(tf.AutoConfig.from_pretrained(folder)).from_pretrained(folder, dtype=torch.float64).eval()
        )


@pytest.mark.parametrize("family", [*tools.DECODERS, "mistral", "bert", "t5", "bart"])
def test_what_transformers_reads_gives_the_logits_of_the_attached_model(family: str, tmp_path: Path) -> None:
    model, given = tools.loaded(family, tmp_path / "base"), tiny.batch(tiny.make(family), "none")
    arm = "lora:rank=2,sites=attn.q,attn.v,ffn.in,ffn.out+full" + ("" if family in UNBIASED else "+bias")
    artifacts, before = tools.moved(model, *parse(arm)), tools.weights(model)
    with tiny.Float64(), torch.no_grad():
        plain = tiny.output(model, given)
        with ts.attach(model, *artifacts):
            expected = tiny.output(model, given)
        done = convert.export(tmp_path / "out", artifacts, to="merged", model=model, tokenizer=tiny.tokenizer())
        got = tiny.output(read(family, tmp_path / "out"), given)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert (got - plain).abs().max() > 1e-2
    assert done.difference < 1e-12
    assert tools.unchanged(model, before)
    assert "vLLM" in done.serves


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_tied_weights_stay_tied_and_untied_ones_apart(family: str, tied: bool, tmp_path: Path) -> None:
    model = tools.loaded(family, tmp_path / "base", tie_word_embeddings=tied)
    artifacts = tools.moved(model, ts.Full())
    convert.export(tmp_path / "out", artifacts, to="merged", model=model)
    again = read(family, tmp_path / "out")
    assert (again.get_output_embeddings().weight is again.get_input_embeddings().weight) == tied
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert any("head" in name for name in file.keys()) != tied  # noqa: SIM118


def test_a_changed_token_that_came_out_wrong_is_seen_whichever_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    model, whole = tools.loaded("llama", tmp_path / "base", tie_word_embeddings=False), merged.merged_copy
    for token in range(0, model.config.vocab_size, 7):

        def wrongly(model: Any, artifacts: Any, row: int = token) -> Any:
            made = whole(model, artifacts)
            with torch.no_grad():
                made.get_input_embeddings().weight[row] += 1
            return made

        monkeypatch.setattr(merged, "merged_copy", wrongly)
        given = tools.moved(model, ts.Full(only=("embed_tokens.weight",), rows=(token,)))
        with pytest.raises(ts.UserError, match="differs from the attached model"):
            convert.export(tmp_path / "out", given, to="merged", model=model)


def test_the_manifest_names_the_base_the_methods_and_the_files_and_no_place_on_this_machine(tmp_path: Path) -> None:
    model = tools.loaded("gpt2", tmp_path / "base")
    artifacts = tools.moved(model, ts.LoRA(rank=2), ts.Bias())
    about = {"task": {"template": "{text}"}}
    mask = os.umask(0o027)
    try:
        convert.export(tmp_path / "out", artifacts, to="merged", model=model, tokenizer=tiny.tokenizer(), about=about)
    finally:
        os.umask(mask)
    manifest = json.loads((tmp_path / "out" / "tunescope-export.json").read_text())
    assert manifest["form"] == "merged"
    assert manifest["base"] == {"name": "base", "fingerprint": fingerprint(model), "model_type": "gpt2"}
    assert [one["method"] for one in manifest["artifacts"]] == ["lora", "bias"]
    assert manifest["artifacts"][0]["fields"]["rank"] == 2
    assert manifest["about"] == about
    for name, digest in manifest["sha256"].items():
        assert tools.sha256(tmp_path / "out" / name) == digest
    for path in (tmp_path / "out").iterdir():
        assert str(tmp_path) not in path.read_bytes().decode("utf-8", "replace"), path
        assert path.stat().st_mode & 0o777 == 0o640, path


@pytest.mark.parametrize(
    ("arm", "family", "message"),
    [
        (
            "soft:length=2",
            "gpt2",
            "cannot hold soft: it is tokens in front of the text .* Use --to soft_token or embeds",
        ),
        ("prefix:length=2", "gpt2", "cannot hold prefix: it is keys and values in every layer"),
        ("infix:length=2", "gpt2", "cannot hold infix: it is keys and values"),
        ("adapter:bottleneck=2", "gpt2", "cannot hold adapter: its work inside a layer .* or tune a lora instead"),
        ("head", "bert", "cannot hold head: it is a classification head of our own"),
        ("reweight:anchors=1", "gpt2", "cannot hold reweight: it changes how attention is computed"),
        ("lora:sites=attn", "llama", "acts on the whole block 'decoder.0.self'"),
        ("lora+adapter:bottleneck=2", "gpt2", "cannot hold adapter"),
    ],
)
def test_what_is_no_change_of_weights_is_refused_with_the_reason(
    arm: str, family: str, message: str, tmp_path: Path
) -> None:
    model = tiny.make(family)
    specs = (ts.Text(text="w5 w6 w7"), *parse(arm)) if "reweight" in arm else parse(arm)
    artifacts = tools.moved(model, *specs, tokenizer=tiny.tokenizer())[-len(parse(arm)) :]
    before = tools.weights(model)
    with pytest.raises(ts.UserError, match=message):
        convert.export(tmp_path / "out", artifacts, to="merged", model=model)
    assert not (tmp_path / "out").exists()
    assert tools.unchanged(model, before)


def test_biases_of_a_model_that_has_none_are_refused_with_what_its_config_says(tmp_path: Path) -> None:
    artifact = ts.Artifact(ts.Bias(), {})
    with pytest.raises(
        ts.UserError, match=r"no such parameter to change \(its config says attention_bias=False, mlp_b"
    ):
        convert.export(tmp_path / "out", [artifact], to="merged", model=tiny.make("llama"))


def test_a_quantised_base_is_refused(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    model.is_quantized = True
    with pytest.raises(ts.UserError, match="these are quantised: attach it to them, or tune"):
        convert.export(tmp_path / "out", tools.moved(model, ts.LoRA(rank=2)), to="merged", model=model)


def test_half_precision_and_a_missing_tokenizer_are_told(tmp_path: Path) -> None:
    model = tiny.make("gpt2", dtype=torch.bfloat16)
    done = convert.export(tmp_path / "out", tools.moved(model, ts.LoRA(rank=2)), to="merged", model=model)
    assert any("rounded to bfloat16" in note for note in done.notes)
    assert any("no tokenizer was given" in note for note in done.notes)
    with tools.quiet():
        again = tf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert again.dtype == torch.bfloat16


def test_what_transformers_does_not_save_is_one_line(tmp_path: Path) -> None:
    model = tiny.make("gpt2")
    model.generation_config.num_return_sequences = 3  # of greedy decoding, which gives one
    with pytest.raises(ts.UserError, match="transformers does not save this GPT2LMHeadModel: "):
        convert.export(tmp_path / "out", tools.moved(model, ts.LoRA(rank=2)), to="merged", model=model)
    assert list(tmp_path.iterdir()) == []
