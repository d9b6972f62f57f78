"""A LoRA as a GGUF adapter: in a stock llama.cpp server, over the whole vocabulary; and what is refused."""

import importlib.metadata
import json
from contextlib import nullcontext

import pytest
import torch
import transformers as tf
from running_llama import completion, running
from tiny_gguf import gguf_of

import tunescope as ts
from tunescope.exchange import convert

gguf = pytest.importorskip("gguf", reason="the package gguf writes the files")

SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SHAPE |= {"vocab_size": 300, "intermediate_size": 96, "max_position_embeddings": 128, "tie_word_embeddings": False}
CONFIGS = {
    "llama": tf.LlamaConfig(**SHAPE),
    "mistral": tf.MistralConfig(**SHAPE, sliding_window=None),
    "qwen2": tf.Qwen2Config(**SHAPE),
    "qwen3": tf.Qwen3Config(**SHAPE, head_dim=32),
    "gpt2": tf.GPT2Config(
        vocab_size=300,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=128,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    ),
}
CASES = {
    "queries and keys": [ts.LoRA(rank=3, alpha=6.0, sites=("attn.q", "attn.k"))],
    "two at every map, of two ranks": [
        ts.LoRA(rank=2, sites=("all-linear",)),
        ts.LoRA(rank=5, sites=("attn.v", "ffn.in")),
    ],
}


def model_of(name, dtype=torch.float32):
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(CONFIGS[name]).to(dtype).eval()
    for value in model.parameters():
        value.data.mul_(3 if value.dim() > 1 else 1).add_(0.01 * torch.randn_like(value))
    model.lm_head.weight.data[:259] /= 100  # bytes: of half a character a server tells no probabilities
    return model


def tuned_of(model, specs, seed=3):
    with ts.attach(model, *specs, seed=seed) as tuned:
        for value in tuned.named_parameters().values():
            value.data.add_(torch.randn_like(value) / 8)
        return list(tuned.artifacts)


def exported(folder, artifacts, model, **more):
    return convert.export(folder, artifacts, to="llama_lora", model=model, **more)


def asked(address, ids, **more):
    """(tokens of a greedy answer, log probabilities of the first, (vocabulary,))"""
    given = {"n_predict": 8, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    found = completion(address, ids, **given, n_probs=300, **more)
    first = {one["id"]: one["logprob"] for one in found["completion_probabilities"][0]["top_logprobs"]}
    return found["tokens"], torch.tensor([first[index] for index in range(300)])


def wanted(model, artifacts, ids):
    given = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with ts.attach(model, *artifacts) if artifacts else nullcontext():
        written = model.generate(torch.tensor([ids]), **given)[0, len(ids) :].tolist()
        with torch.no_grad():
            return written, model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_stock_server_chooses_among_adapters_by_request_and_answers_as_the_tuned_model(name, tmp_path):
    pytest.importorskip("xllamacpp", reason="a llama.cpp server comes with the package xllamacpp")
    model = model_of(name)
    gguf_of(model, tmp_path / "model.gguf")
    tuned = [tuned_of(model, specs) for specs in CASES.values()]
    for index, artifacts in enumerate(tuned):
        assert exported(tmp_path / str(index), artifacts, model).difference < 1e-6
    files = [tmp_path / str(index) / "lora.gguf" for index in range(len(tuned))]
    ids = torch.randint(3, 300, (6,)).tolist()
    bare = wanted(model, [], ids)
    with running(tmp_path / "model.gguf", tmp_path, "f32", *files) as address:
        for index in (None, 0, 1, 0, None, 1):
            artifacts = [] if index is None else tuned[index]
            written, likely = wanted(model, artifacts, ids)
            chosen = {"id": index or 0, "scale": float(index is not None)}
            tokens, seen = asked(address, ids, lora=[chosen])
            assert tokens == written
            table = 1e-3 if name == "gpt2" else 1e-5  # llama.cpp reads GELU from a table of 16 bits
            torch.testing.assert_close(seen, likely, rtol=0, atol=table)
            assert index is None or (likely - bare[1]).abs().max() > 0.1


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_in_float64_the_file_is_as_near_as_its_own_float32(name, tmp_path):
    model = model_of(name, torch.float64)
    done = exported(tmp_path / "lora", tuned_of(model, CASES["queries and keys"]), model)
    assert 0 < done.difference < 1e-6


def test_the_notes_say_what_to_type_and_what_is_not_in_the_file(tmp_path):
    model = model_of("llama")
    artifacts = tuned_of(model, [ts.LoRA(rank=2, dropout=0.5)])
    done = exported(tmp_path / "lora", artifacts, model, about={"task": {"template": "{text}"}})
    assert "LoRA of rank 2 on 4 maps: llama-server -m BASE.gguf --lora lora.gguf" in done.notes
    assert any("dropout" in note for note in done.notes) and any("template" in note for note in done.notes)
    manifest = json.loads((tmp_path / "lora" / "tunescope-export.json").read_text())
    assert manifest["form"] == "llama_lora" and list(manifest["sha256"]) == ["lora.gguf"]
    reader = gguf.GGUFReader(tmp_path / "lora" / "lora.gguf")
    fields = {name: reader.fields[name].contents() for name in ("general.type", "adapter.type", "general.architecture")}
    assert list(fields.values()) == ["adapter", "lora", "llama"]


def test_a_damaged_file_is_not_kept(monkeypatch, tmp_path):
    from tunescope.exchange.serving import gguf_lora

    model = model_of("llama")
    monkeypatch.setattr(gguf_lora, "_paired", lambda model, name, b: b)
    with pytest.raises(ts.UserError, match="differs from the attached model"):
        exported(tmp_path / "lora", tuned_of(model, CASES["queries and keys"]), model)
    assert not (tmp_path / "lora").exists()


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ([ts.Prefix(length=2)], r"holds LoRA alone, and prefix .* none: --to llama_slot takes a context"),
        ([ts.LoRA(rank=2, gain=True)], r"holds LoRA alone, and DoRA .* none: merge it \(--to merged\)"),
        ([ts.LoRA(rank=2), ts.Bias()], r"holds LoRA alone, and bias .* none: merge it"),
        ([ts.LoRA(rank=2), ts.Adapter()], r"holds LoRA alone, and adapter .* none: no llama.cpp server has a place"),
    ],
)
def test_what_is_no_plain_lora_is_refused(specs, says, tmp_path):
    model = model_of("gpt2")
    with pytest.raises(ts.UserError, match=says):
        exported(tmp_path / "lora", tuned_of(model, specs), model)
    assert not (tmp_path / "lora").exists()


def test_a_family_that_was_not_tried_and_a_body_without_its_head_are_refused(tmp_path):
    other = tf.AutoModelForCausalLM.from_config(tf.Olmo2Config(**SHAPE)).eval()
    with pytest.raises(ts.UserError, match=r"not tried on Olmo2ForCausalLM of olmo2.*convert_lora_to_gguf"):
        exported(tmp_path / "lora", tuned_of(other, [ts.LoRA(rank=2)]), other)
    body = model_of("llama").model
    with pytest.raises(ts.UserError, match="decoders with their head"):
        exported(tmp_path / "lora", tuned_of(body, [ts.LoRA(rank=2)]), body)


def test_a_map_without_a_name_in_gguf_is_refused(tmp_path):
    model = model_of("llama")
    model.model.layers[0].mlp.act_fn = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Linear(96, 96))
    artifacts = tuned_of(model, [ts.LoRA(rank=2, sites=("path:*act_fn.1",))])
    with pytest.raises(ts.UserError, match=r"no map for 'model.layers.0.mlp.act_fn.1': merge it"):
        exported(tmp_path / "lora", artifacts, model)


def test_without_the_package_the_line_says_what_to_type(monkeypatch, tmp_path):
    from tunescope.exchange.serving import gguf_lora

    model = model_of("llama")
    artifacts = tuned_of(model, [ts.LoRA(rank=2)])
    monkeypatch.setattr(gguf_lora, "find_spec", lambda name: None)
    with pytest.raises(ts.UserError, match="pip install gguf"):
        exported(tmp_path / "lora", artifacts, model)


@pytest.mark.parametrize("old", ["0.10.0", "0.16.3"])
def test_with_an_old_package_the_line_says_what_to_type(old, monkeypatch, tmp_path):
    model = model_of("llama")
    artifacts = tuned_of(model, [ts.LoRA(rank=2)])
    monkeypatch.setattr(importlib.metadata.Distribution, "version", old)
    with pytest.raises(ts.UserError, match=rf"gguf, of which {old} is too old. Type: pip install --upgrade gguf"):
        exported(tmp_path / "lora", artifacts, model)
    assert not (tmp_path / "lora").exists()
