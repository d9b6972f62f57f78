import hashlib

import masked
import pytest
import tinyrun

from tunescope.data.general_text import general_text
from tunescope.tasks.windows import cut, share_kept


def test_windows_do_not_overlap_are_equally_long_and_are_spread_over_all_of_the_text():
    tokenizer, text = masked.byte_level(), general_text()
    tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    found = cut(text, tokenizer, 50, 7)
    assert found.sha256 == hashlib.sha256(text.encode()).hexdigest() and found.reason == ""
    whole = len(tokens) // 50
    starts = [one * whole // 7 * 50 for one in range(7)]
    assert [list(row) for row in found.rows] == [tokens[at : at + 50] for at in starts]
    assert starts[0] == 0 and starts[-1] > 0.8 * len(tokens)


def test_a_short_text_gives_as_many_as_it_has_and_none_where_it_is_shorter_than_one():
    tokenizer = masked.byte_level()
    tokens = tokenizer("the film was good", add_special_tokens=False)["input_ids"]
    half = len(tokens) // 2
    assert cut("the film was good", tokenizer, half, 16).rows[:2] == (
        tuple(tokens[:half]),
        tuple(tokens[half : 2 * half]),
    )
    assert cut("the film was good", tokenizer, len(tokens) + 1, 16).rows == ()


def test_a_vocabulary_that_hardly_knows_the_text_has_no_windows_and_a_reason():
    found = cut(general_text(), tinyrun.tokenizer(), 8, 4)
    assert found.rows == () and "the tokenizer knows" in found.reason and "% of the text's letters" in found.reason


@pytest.mark.parametrize(("text", "share"), [("good bad film", 1.0), ("good good nope nope", 0.5), ("...", 1.0)])
def test_what_is_known_is_the_share_of_letters_that_come_back(text, share):
    tokenizer = tinyrun.tokenizer()
    assert share_kept(text, tokenizer(text)["input_ids"], tokenizer) == share


def test_lower_case_and_pieces_of_words_are_known():
    tokenizer, text = masked.word_piece(), "The PLOT, was unfathomable."
    assert share_kept(text, tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer) == 1.0
