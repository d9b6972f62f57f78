"""Words in front of a text are read as the two are in one text: at their border no token is another."""

import pytest
import tiny
import tinyrun
import torch
from line_ends import tokenizer
from tokenizers import pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

import tunescope as ts
from tunescope.methods.contexts.text import last_ids, token_ids, words_before
from tunescope.tasks.prompts.demonstrations import solved
from tunescope.tasks.prompts.spans import spans

SHOWN = "Review: bad\nSentiment: neg\n\nReview: good\nSentiment: pos\n\n"
QUERY = "Review: dull\nSentiment:"


def plain(made, text):
    return made(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("text", [SHOWN, SHOWN[:-1], SHOWN[:-2], "a\t\n", "\n\n"])
def test_ids_in_front_of_a_query_are_those_of_the_two_as_one_text(text):
    made = tokenizer()
    assert token_ids(made, text) + plain(made, QUERY) == plain(made, text + QUERY)
    assert (words_before(made, text) == plain(made, text)) == (not text.endswith("\n\n"))


def test_where_the_word_would_take_the_white_space_with_it_the_text_has_its_own_ids():
    made = tokenizer()
    assert words_before(made, "Classify: ") == plain(made, "Classify: ")
    assert words_before(made, "") == []


def test_a_space_alone_is_not_lost_where_the_word_takes_it_along():
    made = tokenizer()
    made.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert words_before(made, " ") == plain(made, " ") != []


@pytest.mark.parametrize("made", [tinyrun.tokenizer, tiny.tokenizer])
def test_tokenizers_that_read_white_space_in_one_way_have_the_ids_of_before(made):
    made = made()
    assert words_before(made, "good film\n\n") == plain(made, "good film\n\n")


@torch.no_grad()
def test_the_model_answers_behind_the_words_as_to_the_one_text():
    made = tokenizer()
    torch.manual_seed(0)
    model = (
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(made), n_positions=128, n_embd=16, n_layer=2, n_head=2, eos_token_id=0, bos_token_id=0
            )
        )
        .double()
        .eval()
    )
    wanted = model(**made(SHOWN + QUERY, return_tensors="pt")).logits[:, -1]
    query = made(QUERY, return_tensors="pt", add_special_tokens=False)
    with ts.attach(model, ts.Text(text=SHOWN), tokenizer=made):
        torch.testing.assert_close(model(**query).logits[:, -1], wanted, rtol=0, atol=1e-12)
    apart = torch.tensor([plain(made, SHOWN) + plain(made, QUERY)])
    assert (model(apart).logits[:, -1] - wanted).abs().max() > 1e-3


def test_a_prefix_begins_as_the_last_of_these_words():
    made = tokenizer()
    assert last_ids(made, SHOWN, 5) == token_ids(made, SHOWN)[-5:] != plain(made, SHOWN)[-5:]


def test_the_end_of_the_last_demonstration_has_the_tokens_of_the_others():
    made = tokenizer()
    shown = [
        solved("Review: {text}\nSentiment:", {"text": text}, name, name)
        for text, name in (("bad", "neg"), ("good", "pos"))
    ]
    found = spans(made, shown)
    assert list(found.ids) == token_ids(made, SHOWN)
    for place in found.places:
        assert made.convert_ids_to_tokens([found.ids[at] for at in place["end"]]) == ["\u010a", "\u010a"]
    assert sorted(at for place in found.places for some in place.values() for at in some) == list(range(len(found.ids)))
