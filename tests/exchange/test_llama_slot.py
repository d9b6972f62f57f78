"""A context as a slot of a llama.cpp server: in transformers' own cache, in a slot file, and in a server."""

import importlib.util
import struct

import numpy as np
import pytest
import torch
import transformers as tf
from running_llama import running
from tiny_gguf import gguf_of, words
from tokenizers.processors import TemplateProcessing

import tunescope as ts
from tunescope.exchange import convert
from tunescope.exchange.serving import llama_client

SPECS = {
    "prefix": [ts.Prefix(length=5)],
    "prefix after which the text begins": [ts.Prefix(length=5, positions="after")],
    "layer inputs": [ts.Inputs(length=3)],
    "soft prompt": [ts.Soft(length=4)],
    "words": [ts.Text(text="w7 w8 w9 w10")],
    "a prefix and a soft prompt": [ts.Prefix(length=3), ts.Soft(length=2)],
}
BESIDE = {
    "a prefix and a LoRA": [ts.Prefix(length=3), ts.LoRA(rank=2)],
    "a soft prompt and two LoRAs": [ts.Soft(length=2), ts.LoRA(rank=2), ts.LoRA(rank=3, sites=("attn.k", "ffn.out"))],
}
SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS = {"llama": tf.LlamaConfig, "qwen2": tf.Qwen2Config}


def model_of(name, dtype=torch.float64, **more):
    torch.manual_seed(0)
    model = tf.AutoModelForCausalLM.from_config(CONFIGS[name](**SMALL | more)).to(dtype).eval()
    for value in model.parameters():
        value.data.mul_(3 if value.dim() > 1 else 1)
    return model


def tuned_of(model, specs):
    with ts.attach(model, *specs, tokenizer=words(), seed=3) as tuned:
        for value in tuned.named_parameters().values():
            value.data.add_(torch.randn_like(value) / 2)
        return list(tuned.artifacts)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("case", SPECS | BESIDE)
def test_behind_its_keys_and_values_in_a_cache_the_bare_model_is_the_tuned_one(name, case, tmp_path):
    model, specs = model_of(name), (SPECS | BESIDE)[case]
    done = convert.export(tmp_path / "slot", tuned_of(model, specs), to="llama_slot", model=model, tokenizer=words())
    is_turned = any(
        isinstance(one, ts.Prefix | ts.Inputs) and getattr(one, "positions", "") != "after" for one in specs
    )
    exact = 2e-6 if case in BESIDE else 1e-12  # a LoRA's file is in float32
    assert done.difference < (2e-6 if is_turned else exact)  # transformers has the angles in float32
    keys, values = (np.load(tmp_path / "slot" / f"{one}.npy") for one in ("keys", "values"))
    assert keys.shape == values.shape and keys.shape[0] == 3 and keys.shape[2] == 2 * 16


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "olmo2"}, "not tried on olmo2"),
        ({"sliding_window": 64}, "this model has a window"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "by the text's length"),
    ],
)
def test_what_a_slot_cannot_be_is_refused(change, says, tmp_path):
    model = model_of("llama")
    artifacts = tuned_of(model, SPECS["prefix"])
    for field, value in change.items():
        setattr(model.config, field, value)
    with pytest.raises(ts.UserError, match=says):
        convert.export(tmp_path / "slot", artifacts, to="llama_slot", model=model, tokenizer=words())


@pytest.mark.parametrize("to", ["llama_slot", "vllm_kv"])
def test_rotations_that_are_made_larger_are_refused(to, tmp_path):
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
    model = model_of("llama", rope_parameters=rope)
    assert model.model.rotary_emb.attention_scaling > 1.1
    with pytest.raises(ts.UserError, match=rf"^--to {to}: this model scales its rotations"):
        convert.export(tmp_path / "out", tuned_of(model, [ts.Prefix(length=2)]), to=to, model=model, tokenizer=words())


@pytest.mark.parametrize("to", ["llama_slot", "vllm_kv"])
@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_rotations_that_hang_on_the_length_of_the_text_are_refused(to, kind, tmp_path):
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
    own = {"attention_factor": 1.0, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8} if kind == "longrope" else {}
    model = model_of("llama", rope_parameters=rope | own, max_position_embeddings=64)
    with pytest.raises(ts.UserError, match=rf"^--to {to}: this model scales its rotations"):
        convert.export(tmp_path / "out", tuned_of(model, [ts.Prefix(length=2)]), to=to, model=model, tokenizer=words())


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        ([ts.LoRA(rank=2)], "export it apart, --to merged"),
        ([ts.Infix(length=2)], "no context in front of the text"),
        ([ts.Prefix(length=2), ts.LoRA(rank=2, gain=True)], "^A GGUF adapter holds LoRA alone, and DoRA"),
    ],
)
def test_what_is_no_context_in_front_is_refused(specs, says, tmp_path):
    model = model_of("llama")
    with pytest.raises(ts.UserError, match=says):
        convert.export(tmp_path / "slot", tuned_of(model, specs), to="llama_slot", model=model, tokenizer=words())


def slot_file(keys, values, *, turned, kind, more=b"", packed=(7, 7, 7)):
    """As llama_state_seq_save_file writes one: https://github.com/ggml-org/llama.cpp, src/llama-kv-cache.cpp."""
    number = {0: np.float32, 1: np.float16}[kind]
    tokens, width = keys.shape[1:]
    data = struct.pack("<4sII", b"qsgg", 4, len(packed)) + struct.pack(f"<{len(packed)}I", *packed)
    data += struct.pack("<II", 1, tokens) + b"".join(struct.pack("<iIi", place, 1, 0) for place in range(tokens))
    data += struct.pack("<II", turned, len(keys)) + more
    size = np.dtype(number).itemsize
    for layer in keys:
        data += struct.pack("<iQ", kind, size * width) + layer.astype(number).tobytes()
    for layer in values:
        head = struct.pack("<iII", kind, size, width) if turned else struct.pack("<iQ", kind, size * width)
        data += head + (layer.T if turned else layer).astype(number).tobytes()
    return data


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("more", [b"", bytes(8)])
def test_a_slot_file_is_patched_in_its_own_layout_and_nothing_else_of_it_changes(turned, kind, more):
    draw = np.random.default_rng(0)
    old, new = draw.normal(size=(2, 2, 3, 5, 8)).astype(np.float32)
    layout = {"turned": turned, "kind": kind, "more": more}
    assert llama_client.patched(slot_file(*old, **layout), *new) == slot_file(*new, **layout)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:-1], "not known here"),
        (lambda data: data + b"\0", "not known here"),
        (lambda data: b"ggml" + data[4:], "not known here"),
    ],
)
def test_a_slot_file_of_another_form_is_refused(change, says):
    keys = np.zeros((3, 5, 8), np.float32)
    data = slot_file(keys, keys, turned=1, kind=0)
    with pytest.raises(SystemExit, match=says):
        llama_client.patched(change(data), keys, keys)
    with pytest.raises(SystemExit, match="has 3 layers, and this is of 2"):
        llama_client.patched(data, keys[:2], keys[:2])
    with pytest.raises(SystemExit, match="other widths"):
        llama_client.patched(data, keys[..., :4], keys[..., :4])


def client_of(folder):
    found = importlib.util.spec_from_file_location("client_llama", folder / "client_llama.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_a_start_token_stands_between_a_prefix_and_the_text_and_not_behind_words(tmp_path, monkeypatch):
    model, tokenizer = model_of("llama"), words()
    tokenizer.bos_token = "w1"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="w1 $A", special_tokens=[("w1", 1)])
    for spec, start in ((ts.Prefix(length=3), (1,)), (ts.Text(text="w7 w8"), ())):
        with ts.attach(model, spec, tokenizer=tokenizer) as tuned:
            artifacts = list(tuned.artifacts)
        folder = tmp_path / type(spec).__name__
        convert.export(folder, artifacts, to="llama_slot", model=model, tokenizer=tokenizer)
        client, sent = client_of(folder), []
        assert start == client.START
        monkeypatch.setattr(client, "post", lambda url, path, body, sent=sent: sent.append(body))
        client.ask("http://here", [0, 0, 0], [7, 8], slot=2)
        assert sent == [{"prompt": [0, 0, 0, *start, 7, 8], "id_slot": 2, "cache_prompt": True}]


@pytest.fixture(params=["f32", "f16"])
def server(request, tmp_path):
    """(model, address, folder of its slots)"""
    pytest.importorskip("xllamacpp", reason="a llama.cpp server comes with the package xllamacpp")
    pytest.importorskip("gguf", reason="the package gguf writes the server's model")
    model = model_of("llama", torch.float32)
    gguf_of(model, tmp_path / "model.gguf")
    (tmp_path / "slots").mkdir()
    with running(tmp_path / "model.gguf", tmp_path / "slots", request.param) as address:
        yield model, address, tmp_path / "slots"


@pytest.mark.parametrize("specs", [[ts.Prefix(length=3)], [ts.Soft(length=4)]], ids=["prefix", "soft"])
def test_a_lora_beside_it_is_a_file_of_its_own_that_the_server_adds(specs, tmp_path):
    pytest.importorskip("xllamacpp", reason="a llama.cpp server comes with the package xllamacpp")
    pytest.importorskip("gguf", reason="the package gguf writes the server's model")
    model = model_of("llama", torch.float32)
    gguf_of(model, tmp_path / "model.gguf")
    artifacts = tuned_of(model, [*specs, ts.LoRA(rank=2, sites=("attn.q", "attn.k", "ffn.in"))])
    slot = tmp_path / "slot"
    done = convert.export(slot, artifacts, to="llama_slot", model=model, tokenizer=words())
    assert any("--lora lora.gguf" in note for note in done.notes)
    client = client_of(slot)
    assert "llama-server -m MODEL.gguf --lora lora.gguf --slot-save-path" in client.__doc__
    (tmp_path / "slots").mkdir()
    with running(tmp_path / "model.gguf", tmp_path / "slots", "f32", slot / "lora.gguf") as address:
        stand_ins = client.place(address, tmp_path / "slots", slot)
        for ids in torch.randint(3, 300, (3, 6)).tolist():
            given = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            alone = []
            for tuned in (artifacts, artifacts[:1], artifacts[1:]):
                with ts.attach(model, *tuned, tokenizer=words()):
                    alone.append(model.generate(torch.tensor([ids]), **given)[0, 6:].tolist())
            asked = {"n_predict": 12, "temperature": 0, "ignore_eos": True, "return_tokens": True}
            assert client.ask(address, stand_ins, ids, **asked)["tokens"] == alone[0]
            assert alone[0] not in alone[1:]


def test_a_stock_server_writes_what_the_tuned_model_writes(server, tmp_path):
    model, address, slots = server
    for index, (case, specs) in enumerate(SPECS.items()):
        artifacts = tuned_of(model, specs)
        folder = tmp_path / f"slot-{index}"
        convert.export(folder, artifacts, to="llama_slot", model=model, tokenizer=words())
        client = client_of(folder)
        stand_ins = client.place(address, slots, folder)
        for ids in torch.randint(3, 300, (3, 6)).tolist():
            given = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            with ts.attach(model, *artifacts, tokenizer=words()):
                wanted = model.generate(torch.tensor([ids]), **given)[0, 6:].tolist()
            asked = {"n_predict": 12, "temperature": 0, "ignore_eos": True, "return_tokens": True}
            assert client.ask(address, stand_ins, ids, **asked)["tokens"] == wanted, case
            bare = model.generate(torch.tensor([ids]), **given)[0, 6:].tolist()
            assert bare != wanted
