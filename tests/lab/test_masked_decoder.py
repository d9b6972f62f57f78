"""A decoder in a masked model's class: the same numbers where both see the same, and a masked word is learned."""

import logging
import sys
from contextlib import nullcontext

import pytest
import torch
import transformers as tf

from tunescope.errors import UserError
from tunescope.lab.worlds import masked_decoder, texts
from tunescope.lab.worlds.manifest import digests, read_manifest

LINES = [
    f"the {animal} sat on the {place} and the {animal} was glad"
    for animal in ("cat", "dog", "cow")
    for place in ("mat", "log", "hay")
]
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}


def decoder_of(layers=1, **more):
    torch.manual_seed(0)
    words = texts.tokenizer(LINES, 400)
    config = tf.LlamaConfig(
        vocab_size=len(words), num_hidden_layers=layers, max_position_embeddings=128, **SHAPE, **more
    )
    return tf.LlamaForCausalLM(config).eval(), words


@pytest.mark.parametrize("more", [{"tie_word_embeddings": True}, {"attention_bias": True, "head_dim": 32}])
def test_where_both_see_the_same_the_numbers_are_the_decoders(more):
    decoder, words = decoder_of(**more)
    for value in decoder.parameters():
        value.data.add_(0.1 * torch.randn_like(value))
    ids = torch.randint(3, 300, (3, 9))
    made = masked_decoder.both_ways(decoder, words).eval()
    found, wanted = made(input_ids=ids).logits, decoder(input_ids=ids).logits
    torch.testing.assert_close(found[:, -1, : wanted.shape[2]], wanted[:, -1], rtol=0, atol=1e-5)  # which sees all
    assert not torch.allclose(found[:, 0, : wanted.shape[2]], wanted[:, 0], atol=1e-2)  # which sees itself alone there
    alone = made(input_ids=ids[:, :1]).logits[..., : wanted.shape[2]]
    torch.testing.assert_close(alone, decoder(input_ids=ids[:, :1]).logits, rtol=0, atol=1e-5)


def test_the_loss_is_that_of_the_class_itself():
    decoder, words = decoder_of(2)
    made = masked_decoder.both_ways(decoder, words).eval()
    rows, told = texts.masked(torch.randint(3, 300, (4, 20)), words, 0, 0.3)
    assert (told != -100).sum(1).tolist() == [6] * 4
    torch.testing.assert_close(masked_decoder.loss(made, rows, told), made(input_ids=rows, labels=told).loss)


def asked(tmp_path, monkeypatch, *more):
    folder = tmp_path / "decoder"
    if not folder.exists():
        decoder, words = decoder_of(2)
        decoder.save_pretrained(folder)
        words.save_pretrained(folder)
        (tmp_path / "a.txt").write_text("\n".join(LINES * 30))
    given = [str(folder), str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), "--length", "32", "--rate", "0.003"]
    monkeypatch.setattr(sys, "argv", ["masked_decoder", *given, *more])
    masked_decoder.main()
    return tmp_path / "out"


def test_the_command_makes_a_model_that_tells_masked_words(tmp_path, capsys, monkeypatch):
    out = asked(tmp_path, monkeypatch, "--steps", "80", "--batch-size", "8")
    facts = read_manifest(out)
    assert facts["losses"]["masked words"] < 3 < facts["losses"]["before"] and facts["sha256"] == digests(out)
    assert f"{facts['losses']['masked words']:.3f} now" in capsys.readouterr().out
    model, words = tf.AutoModelForMaskedLM.from_pretrained(out), tf.AutoTokenizer.from_pretrained(out)
    given = words("the cat<mask> on the mat and the cat was glad", return_tensors="pt")
    place = (given["input_ids"][0] == words.mask_token_id).nonzero().item()
    assert words.decode(model(**given).logits[0, place].argmax()) == " sat"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    out.rename(tmp_path / "first")
    again = asked(tmp_path, monkeypatch, "--steps", "80", "--batch-size", "8")
    assert digests(again)["model.safetensors"] == facts["sha256"]["model.safetensors"]


def test_transformers_says_nothing_while_it_is_made_and_is_as_before_behind(tmp_path, monkeypatch):
    log, handler, said = logging.getLogger("transformers"), logging.Handler(), []
    handler.emit = lambda record: said.append(record.getMessage())
    level = log.level
    log.addHandler(handler)
    try:
        asked(tmp_path, monkeypatch, "--steps", "1")
    finally:
        log.removeHandler(handler)
    assert said == [] and log.level == level


def test_what_is_cut_off_is_gone_on_from(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(masked_decoder, "SAVE_EVERY", 0.0)

    def cut(now):
        if now.step == 6:
            raise KeyboardInterrupt

    steps = []
    monkeypatch.setattr(masked_decoder, "_say", cut)
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path, monkeypatch, "--steps", "9")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(masked_decoder, "_say", lambda now: steps.append(now.step))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("out")] == []
    assert len(list(tmp_path.glob(".out.*.begun"))) == 1
    assert asked(tmp_path, monkeypatch, "--steps", "9").is_dir() and min(steps) > 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(SystemExit):
        asked(tmp_path, monkeypatch, "--steps", "9")
    assert f"--out {tmp_path / 'out'} is there already" in capsys.readouterr().err


def test_another_question_of_the_same_folder_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(masked_decoder, "SAVE_EVERY", 0.0)

    def cut(now):
        if now.step == 6:
            raise KeyboardInterrupt

    steps = []
    said = iter([cut, cut, lambda now: steps.append(now.step)])
    for more in (("--rate", "0.01"), ("--batch-size", "2"), ()):
        monkeypatch.setattr(masked_decoder, "_say", next(said))
        with nullcontext() if not more else pytest.raises(KeyboardInterrupt):
            out = asked(tmp_path, monkeypatch, "--steps", "9", *more)
    assert min(steps) == 1
    first = digests(out)["model.safetensors"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    out.rename(tmp_path / "first")
    assert digests(asked(tmp_path, monkeypatch, "--steps", "9"))["model.safetensors"] == first


def test_a_folder_without_a_model_is_told_in_a_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["masked_decoder", str(tmp_path), str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        masked_decoder.main()
    assert f"{tmp_path} is no decoder that transformers reads: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_form_is_refused_in_a_line():
    gpt2 = tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2))
    with pytest.raises(UserError, match="GPT2LMHeadModel of gpt2 has no masked class of its form: give a Llama"):
        masked_decoder.both_ways(gpt2, texts.tokenizer(LINES, 400))
