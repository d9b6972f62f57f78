"""Which tokens may be used, against the tokenizers library alone."""

from pathlib import Path

import pytest
import transformers as tf
from search_tools import byte_level, tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import tunescope as ts
from tunescope.methods.contexts.text import token_ids
from tunescope.search.vocabulary import vocabulary

STORIES = Path(__file__).parents[3] / "shared/models/stories260K"


def word_piece():
    """BERT's kind: a word's later pieces begin with ##."""
    words = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[unused1]",
        "good",
        "film",
        "##s",
        "##ly",
        "bad",
        "unused",
        "[",
        "]",
        "##1",
        "#",
    ]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")


@pytest.mark.parametrize("make", [byte_level, word_piece, tokenizer])
def test_an_allowed_token_is_one_that_is_its_own_text(make):
    tokens = make()
    backend, rows = tokens.backend_tokenizer, len(tokens) + 3
    found = vocabulary(tokens, rows)
    expected = []
    for index in range(len(tokens)):
        text = backend.decode([index], skip_special_tokens=False)
        is_special = index in tokens.all_special_ids
        is_unread = not text.strip() or any(ord(one) < 32 or 127 <= ord(one) < 160 for one in text)
        if (
            not is_special
            and not is_unread
            and "\ufffd" not in text
            and backend.encode(text, add_special_tokens=False).ids == [index]
        ):
            expected.append(index)
    assert list(found.ids) == expected and expected
    assert len(found.ids) + sum(found.left_out.values()) == rows
    assert found.left_out["without a token"] == 3


def test_each_token_is_left_out_for_the_first_reason_that_holds():
    tokens = byte_level()
    found = vocabulary(tokens, len(tokens) + 2, ban=("GOOD",))
    names = {"special": 1, "without a token": 2}
    assert names.items() <= found.left_out.items()
    assert found.left_out["parts of characters"] > 100  # bytes that are no character alone
    assert found.left_out["banned"] >= 2  # "good" and " good"
    assert not any("good" in found.text([index]).lower() for index in found.ids)
    pieces = vocabulary(word_piece(), 14)
    assert [pieces.text([index]) for index in pieces.ids] == ["good", "film", "bad", "unused", "[", "]", "#"]
    assert pieces.left_out == {"special": 3, "that come back as others": 4}


@pytest.mark.parametrize("sign", ["\ufe0f", "\u200b", "\u00ad", "\u202e", "a\u202e", "\u3164", " \u2060", "a\x07"])
def test_signs_that_nobody_sees_or_that_turn_the_writing_round_are_left_out(sign):
    made = Tokenizer(models.WordLevel({"[UNK]": 0, sign: 1, "a\u200d": 2, "\u0301": 3, "\u0e31": 4}, unk_token="[UNK]"))
    found = vocabulary(tf.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]"), 5)
    assert found.left_out == {"special": 1, "blanks and control characters": 1}
    assert found.ids == (2, 3, 4)


def test_tokens_that_merge_where_they_meet_do_not_come_back_and_settle_to_what_they_merge_to():
    tokens = byte_level()
    found = vocabulary(tokens, len(tokens))
    known = tokens.get_vocab()
    split, merged = [known["Ġ"], known["good"]], [known["Ġgood"]]
    assert {known["good"], *merged} <= set(found.ids)
    assert known["Ġ"] not in found.ids and found.left_out["blanks and control characters"] > 30
    assert found.all_come_back([split, merged]) == [False, True]
    assert (found.comes_back(split), found.comes_back(merged)) == (False, True)
    assert found.settled(split) == (" good", tuple(merged))
    assert found.settled(merged) == (" good", tuple(merged))


def test_a_prompt_does_not_settle_into_a_special_token_that_was_added():
    tokens = byte_level()
    tokens.add_tokens([AddedToken("<|reserved|>", special=True)])
    found = vocabulary(tokens, len(tokens))
    pieces = tokens.backend_tokenizer.encode("<|reserved", add_special_tokens=False).ids
    pieces += tokens.backend_tokenizer.encode("|>", add_special_tokens=False).ids
    assert len(tokens) - 1 not in tokens.all_special_ids or len(tokens) - 1 in found.special
    assert found.text(pieces) == "<|reserved|>" and found.settled(pieces) is None


def test_what_settles_is_what_the_text_context_makes_of_the_text():
    tokens = tokenizer(start=True)
    found = vocabulary(tokens, 96)
    assert found.start == (1,)
    text, ids = found.settled([20, 21])
    assert (text, ids) == ("w20 w21", (1, 20, 21))
    assert list(ids) == token_ids(tokens, text)


def test_what_cannot_be_written_or_is_banned_as_a_whole_never_settles():
    tokens = byte_level()
    found = vocabulary(tokens, len(tokens), ban=("dba",))
    known = tokens.get_vocab()
    prompt = [known["bad"], known["bad"]]
    assert set(prompt) <= set(found.ids) and not found.comes_back(prompt)
    assert found.all_come_back([prompt]) == [False]
    assert found.settled(prompt) is None
    assert found.settled([known["<|end|>"]]) is None
    half = next(i for i in known.values() if "\ufffd" in tokens.decode([i]))
    assert found.settled([half]) is None
    assert found.settled([]) is None


def test_of_stories_whole_words_are_left():
    if not STORIES.exists():
        pytest.skip("stories260K is not here")
    tokens = tf.AutoTokenizer.from_pretrained(STORIES)
    found = vocabulary(tokens, 512)
    assert found.start == (1,) and {"Once", "little", "happy"} <= {found.text([index]) for index in found.ids}
    assert found.left_out["parts of characters"] == 128  # <0x80> to <0xFF>
    prompts = [list(found.ids[i : i + 5]) for i in range(0, 85, 5)]
    assert all(found.all_come_back(prompts))
    assert [found.settled(ids)[1] for ids in prompts] == [(1, *ids) for ids in prompts]


@pytest.mark.parametrize(
    ("ban", "message"),
    [
        (
            ("w",),
            r"No token is left to make a prompt of: of 96, 82 banned, 10 that come back as others, 4 special. Ban less",
        ),
        (("",), "ban has an empty string, which every token holds; name strings, as in ban=good,bad"),
    ],
)
def test_a_vocabulary_left_empty_is_told(ban, message):
    with pytest.raises(ts.UserError, match=message):
        vocabulary(tokenizer(), 96, ban)
