"""Losses on windows, against sums over positions written out by hand from transformers' own logits."""

import random

import masked
import mbart
import pytest
import torch
import transformers as tf

from tunescope.attachment.attached import attach
from tunescope.errors import UserError
from tunescope.methods.contexts.prefix import Prefix
from tunescope.methods.contexts.text import Text
from tunescope.tasks.answers import own_loss
from tunescope.tasks.answers.own_loss import MASKED, masked_places, window_losses

ROWS, LENGTH = 3, 14


def gpt2():
    tokenizer = masked.byte_level()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = tf.GPT2Config(vocab_size=len(tokenizer), n_embd=24, n_layer=2, n_head=3, n_positions=64)
        model = tf.GPT2LMHeadModel(config).double().eval()
        for parameter in model.parameters():
            parameter.data.add_(0.15 * torch.randn_like(parameter))
    return model, tokenizer


def windows(tokenizer, length=LENGTH):
    draw = random.Random(1)
    return [tuple(draw.randrange(5, min(len(tokenizer), 100)) for _ in range(length)) for _ in range(ROWS)]


def of_tokens(logits, targets):
    """The mean of -log p of each target, from its row of logits, one by one."""
    each = [
        -torch.log(torch.exp(row[token]) / torch.exp(row).sum()) for row, token in zip(logits, targets, strict=True)
    ]
    return torch.stack(each).sum() / len(each)


def literal_next_tokens(model, front, window):
    logits = model(input_ids=torch.tensor([[*front, *window]])).logits[0]
    first = len(front)
    return of_tokens(logits[first : first + len(window) - 1], window[1:])


def close(found, expected):
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-11)


@torch.no_grad()
def test_a_decoders_loss_is_that_of_every_token_but_the_first_behind_what_begins_a_text():
    model, tokenizer = gpt2()
    rows = windows(tokenizer)
    close(window_losses(model, rows, tokenizer), [literal_next_tokens(model, (0,), row) for row in rows])  # <s> is 0


@torch.no_grad()
def test_with_words_in_front_it_is_the_loss_of_the_same_tokens_behind_these_words():
    model, tokenizer = gpt2()
    rows = windows(tokenizer)
    words = tokenizer("the plot was dull").input_ids[:-1]
    expected = [literal_next_tokens(model, words, row) for row in rows]
    with attach(model, Text(text="the plot was dull"), tokenizer=tokenizer):
        close(window_losses(model, rows, tokenizer, bos=False), expected)


@torch.no_grad()
@pytest.mark.parametrize("length", [LENGTH, LENGTH + 1])
def test_an_encoder_decoders_loss_is_that_of_the_second_half_given_the_first(length):
    """Of an odd window the longer half is the one that is asked for."""
    model, tokenizer = masked.make("t5")
    rows, half, expected = windows(tokenizer, length), length // 2, []
    for row in rows:
        source = torch.tensor([[*row[:half], 1]])  # </s>
        read = torch.tensor([[0, *row[half:-1]]])  # T5's decoder starts with <pad>
        logits = model(input_ids=source, decoder_input_ids=read).logits[0]
        expected.append(of_tokens(logits, row[half:]))
    close(window_losses(model, rows, tokenizer), expected)


@torch.no_grad()
@pytest.mark.parametrize("family", ["mbart", "mbart50"])
def test_a_translators_decoder_is_begun_as_it_was_in_training(tmp_path, family):
    folder = mbart.write(tmp_path, family)
    model = tf.AutoModelForSeq2SeqLM.from_pretrained(folder).double().eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, src_lang="en_XX", tgt_lang="ro_RO")
    english, romanian = tokenizer.convert_tokens_to_ids(["en_XX", "ro_RO"])
    rows = [(4, 5, 6, 7, 8, 9, 10, 4), (10, 9, 8, 7, 6, 5, 4, 4)]
    expected = []
    for row in rows:
        if family == "mbart":  # the text, </s>, its language; the decoder begins with the language
            source, read = [*row[:4], 2, english], [romanian, *row[4:-1]]
        else:
            source, read = [english, *row[:4], 2], [2, romanian, *row[4:-1]]
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([read])).logits[0]
        expected.append(of_tokens(logits[-4:], row[4:]))
    close(window_losses(model, rows, tokenizer), expected)


@torch.no_grad()
@pytest.mark.parametrize(("name", "front", "back"), [("bert", 2, 3), ("roberta", 0, 2)])
def test_an_encoders_loss_is_that_of_the_masked_tokens(name, front, back):
    model, tokenizer = masked.make(name)
    rows, expected = windows(tokenizer), []
    places = [place for place, is_masked in enumerate(masked_places(LENGTH).tolist()) if is_masked]
    for row in rows:
        read = [tokenizer.mask_token_id if place in places else token for place, token in enumerate(row)]
        logits = model(input_ids=torch.tensor([[front, *read, back]])).logits[0]
        expected.append(of_tokens(logits[[place + 1 for place in places]], [row[place] for place in places]))
    close(window_losses(model, rows, tokenizer), expected)


@pytest.mark.parametrize("length", [1, 16, 31, 128])
def test_the_masked_places_are_15_percent_one_at_least_and_always_the_same(length):
    assert int(masked_places(length).sum()) == max(1, round(MASKED * length))
    assert torch.equal(masked_places(length), masked_places(length))


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_passes_of_one_window_and_of_all_give_the_same(name, monkeypatch):
    model, tokenizer = masked.make(name)
    rows = windows(tokenizer)
    whole = window_losses(model, rows, tokenizer)
    monkeypatch.setattr(own_loss, "LOGITS", 1)
    torch.testing.assert_close(window_losses(model, rows, tokenizer), whole, rtol=0, atol=1e-12)


def test_it_leaves_no_gradient_no_hook_and_the_modes_as_they_were():
    model, tokenizer = gpt2()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    with attach(model, Prefix(length=2), seed=0):
        found = window_losses(model, windows(tokenizer), tokenizer)
    assert not found.requires_grad and model.training and model.transformer.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_encoder_without_a_head_for_words_and_a_tokenizer_without_a_mask_are_refused():
    model, tokenizer = masked.make("bert")
    rows = windows(tokenizer)
    with pytest.raises(UserError, match="a classification head has no loss of its own"):
        window_losses(model.bert, rows, tokenizer)
    tokenizer.mask_token = None
    with pytest.raises(UserError, match="no mask token"):
        window_losses(model, rows, tokenizer)
