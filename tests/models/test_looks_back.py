"""A model that looks ahead is no decoder, whatever it is called: its own logits are the oracle."""

from pathlib import Path

import pytest
import tiny
import torch
import transformers as tf
from zoo import zoo

import tunescope as ts
from tunescope.models.anatomy import anatomy, kind
from tunescope.models.load import load_model
from tunescope.models.looks_back import check_looks_back

XLM = {"vocab_size": 64, "emb_dim": 16, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 32}
XLNET = {"vocab_size": 64, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 16}


@torch.no_grad()
def sees_what_follows(model):
    ids = torch.arange(5, 11)[None]
    other = ids.clone()
    other[0, -1] = 20
    mask = torch.ones_like(ids)
    first, second = (model(input_ids=one, attention_mask=mask).logits for one in (ids, other))
    return not torch.allclose(first[:, :-1], second[:, :-1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.XLNetLMHeadModel(tf.XLNetConfig(**XLNET)),
        lambda: tf.XLMWithLMHeadModel(tf.XLMConfig(**XLM)),
        lambda: tf.XLMWithLMHeadModel(tf.XLMConfig(**XLM, causal=True)),
        lambda: tf.FlaubertWithLMHeadModel(tf.FlaubertConfig(**XLM)),
        lambda: tf.CTRLLMHeadModel(tf.CTRLConfig(vocab_size=64, n_embd=16, n_layer=1, n_head=2, dff=16)),
    ],
)
def test_a_head_that_is_named_as_a_decoder_s_makes_one_of_what_looks_back_alone(make):
    torch.manual_seed(0)
    model = make().eval()
    looks_ahead = sees_what_follows(model)
    assert kind(model) == kind(model.config) == anatomy(model).kind == ("encoder" if looks_ahead else "decoder")
    check_looks_back("it", model)


def test_what_an_xlm_is_changes_with_its_config():
    model = tf.XLMWithLMHeadModel(tf.XLMConfig(**XLM)).eval()
    assert anatomy(model).kind == "encoder"
    model.config.causal = True
    assert anatomy(model).kind == "decoder"


def two_ways(name):
    """A model by the name of a decoder, made to look both ways as embedding models are."""
    model = tiny.make(name)
    model.config.is_causal = False
    assert sees_what_follows(model)
    return model


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2"])
def test_a_decoder_that_looks_both_ways_by_its_config_is_refused_in_one_line(name, tmp_path):
    model = two_ways(name)
    with pytest.raises(ts.UserError, match=rf"^it is a {type(model).__name__} that looks ahead: .*\.$"):
        check_looks_back("it", model)
    model.save_pretrained(tmp_path / "saved")
    tiny.tokenizer().save_pretrained(tmp_path / "saved")
    with pytest.raises(ts.UserError, match=r"saved is a .* that looks ahead: what it says of a token changes"):
        load_model(str(tmp_path / "saved"))


def test_nor_is_one_compared_that_was_loaded_before(tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"text": "w{number} w5", "label": "w{number % 2}"}}\n' for number in range(20)))
    with pytest.raises(ts.UserError, match="looks ahead"):
        ts.compare(two_ways("llama"), rows, tokenizer=tiny.tokenizer(), out=tmp_path / "run")


@pytest.mark.parametrize("name", ["mixtral", "jamba", "mamba", "rwkv", "gpt_neo", "bloom"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_decoder_without_a_file_is_tried_and_taken_as_it_is(name, dtype):
    model = zoo(name, dtype=dtype).train()
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    check_looks_back("it", model)
    assert model.training and all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
