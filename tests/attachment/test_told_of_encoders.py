"""A decoder with cross attention, called with what an encoder made: words in front would have been read without it."""

import pytest
import tiny
import torch
import transformers

import tunescope as ts
from tunescope.attachment.bank.bank import Bank

TEXT = "w5 w6 w7"


@pytest.fixture
def decoder():
    config = transformers.GPT2Config(
        **tiny.DECODER, n_embd=24, n_layer=2, n_head=3, n_positions=64, add_cross_attention=True
    )
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config).double().eval()


def given():
    states = torch.randn(2, 5, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return {"input_ids": tiny.ids(2, 6), "encoder_hidden_states": states}


@pytest.mark.parametrize("way", ["text", "soft", "lowered", "bank"])
def test_words_in_front_are_refused_and_without_states_are_those_of_the_row(decoder, way):
    spec = ts.Soft(length=2) if way == "soft" else ts.Text(text=TEXT)
    if way == "lowered":
        (spec,) = ts.lower(decoder, spec, tokenizer=tiny.tokenizer())
    tuned = (
        ts.attach(decoder, Bank({"a": spec}), tokenizer=tiny.tokenizer())
        if way == "bank"
        else ts.attach(decoder, spec, tokenizer=tiny.tokenizer())
    )
    with tuned, tuned.rows(["a", "a"]) if way == "bank" else torch.no_grad(), torch.no_grad():
        with pytest.raises(ts.UserError, match="was read without the encoder_hidden_states that this call has"):
            decoder(**given())
        ids = given()["input_ids"]
        found = decoder(input_ids=ids).logits
    if way != "soft":
        words = torch.tensor(tiny.tokenizer()(TEXT, add_special_tokens=False)["input_ids"])[None].expand(2, -1)
        with torch.no_grad():
            expected = decoder(input_ids=torch.cat([words, ids], 1)).logits[:, words.shape[1] :]
        assert torch.allclose(found, expected, atol=1e-12)


def test_a_prefix_stands_before_the_text_whatever_the_decoder_is_told(decoder):
    with torch.no_grad(), ts.attach(decoder, ts.Prefix(length=2)):
        assert decoder(**given()).logits.shape == (2, 6, decoder.config.vocab_size)
