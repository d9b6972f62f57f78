"""A model in a GGUF file is the model that it was written from, trains like any, and says what it was."""

import sys
from pathlib import Path

import pytest
import torch
import transformers as tf

import tunescope as ts
from tunescope.errors import Note
from tunescope.models import gguf_file
from tunescope.models.load import load_model

pytest.importorskip("gguf", reason="the package gguf writes and reads the file")
sys.path.append(str(Path(__file__).resolve().parents[1] / "exchange"))
from tiny_gguf import gguf_of


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(model, path)"""
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = tf.LlamaForCausalLM(config).eval()
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    gguf_of(model, path)
    return model, str(path)


def test_it_is_the_model_it_was_written_from_and_says_what_it_holds(written):
    model, path = written
    with pytest.warns(Note, match=r"tiny.gguf holds 100% F32; it is computed with in float32"):
        read, tokenizer = load_model(path)
    ids = torch.randint(3, 300, (2, 9))
    torch.testing.assert_close(read(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
    assert read.dtype == torch.float32 and not read.is_quantized and len(tokenizer) == 300


@pytest.mark.filterwarnings("ignore::tunescope.errors.Note")
def test_it_is_read_without_a_bar(written, capfd):
    load_model(written[1])
    assert "%" not in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::tunescope.errors.Note")
def test_an_artifact_is_trained_saved_and_read_back_on_it(written, tmp_path):
    model, tokenizer = load_model(written[1])
    ids = torch.randint(3, 300, (2, 9))
    with ts.attach(model, ts.LoRA(rank=2), ts.Prefix(length=2), tokenizer=tokenizer) as tuned:
        tuned.train()
        model(ids, labels=ids).loss.backward()
        assert all(value.grad is not None for value in tuned.parameters())
        ts.save(tmp_path / "artifact", tuned.artifacts, model=model, tokenizer=tokenizer)
        tuned.eval()
        want = model(ids).logits
    with ts.attach(model, *ts.load(tmp_path / "artifact"), tokenizer=tokenizer):
        torch.testing.assert_close(model(ids).logits, want, rtol=0, atol=0)


def test_what_is_no_gguf_file_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(ts.UserError, match=r"broken.gguf cannot be read as a GGUF file by transformers"):
        load_model(str(tmp_path / "broken.gguf"))
    with pytest.raises(ts.UserError, match="--load would do so again"):
        load_model(str(tmp_path / "broken.gguf"), given={"quantization_config": object()})
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    with pytest.raises(ts.UserError, match="pip install gguf"):
        load_model(str(tmp_path / "broken.gguf"))
