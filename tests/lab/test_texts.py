"""Texts as rows of tokens: the tokenizer gives them back, and span corruption loses nothing."""

import numpy as np
import pytest
import torch

import tunescope as ts
from tunescope.lab.worlds import texts

LINES = [f"the {n} birds flew over {n * 7} hills and sang, café {n % 5}!" for n in range(300)]


@pytest.fixture(scope="module")
def words():
    return texts.tokenizer(LINES, 500)


@pytest.fixture(scope="module")
def found(words):
    return texts.corpus(LINES, words, 32, seed=3)


def test_the_tokenizer_gives_every_text_back_and_has_the_sentinels(words):
    assert len(words) <= 500
    assert words.batch_decode(words(LINES)["input_ids"]) == LINES
    assert words.convert_tokens_to_ids("<extra_id_99>") - words.convert_tokens_to_ids("<extra_id_0>") == 99
    assert words("a")["input_ids"][-1] != words.eos_token_id


def test_rows_are_all_of_the_texts_in_pieces_and_none_is_both_learned_and_held_out(words, found):
    stream = [token for line in LINES for token in [*words(line)["input_ids"], words.eos_token_id]]
    pieces = {tuple(stream[at : at + 32]) for at in range(0, len(stream) - 31, 32)}
    rows = [tuple(row) for row in torch.cat([found.train, found.held_out]).tolist()]
    assert set(rows) == pieces and len(rows) == len(stream) // 32
    assert len(found.held_out) == round(len(rows) * 0.02)


def test_what_spells_a_special_token_is_text_and_no_end_counts_as_text(words):
    odd = [f"{line} </s> <pad> <extra_id_5>" for line in LINES]
    found = texts.corpus(odd, words, 32, seed=3)
    rows = torch.cat([found.train, found.held_out])
    whole = len(rows) * 32 / sum(len(words(line, split_special_tokens=True)["input_ids"]) + 1 for line in odd)
    assert (rows == words.eos_token_id).sum() == pytest.approx(whole * len(odd), abs=2)
    assert not (rows == words.pad_token_id).any() and not (rows == words.convert_tokens_to_ids("<extra_id_5>")).any()
    own = [[token for token in row if token != words.eos_token_id] for row in found.held_out.tolist()]
    assert found.characters_a_token == sum(map(len, words.batch_decode(own))) / found.held_out.numel()


def test_too_little_text_is_refused_with_its_size(words):
    with pytest.raises(ts.UserError, match="28 tokens, 0 rows of 32; at least 20 are needed"):
        texts.corpus(LINES[:2], words, 32, seed=0)


def test_a_corrupted_row_is_whole_again_when_each_sentinel_is_replaced_by_its_span(words, found):
    inputs, targets = texts.corrupted(found.train, words, seed=1)
    first = words.convert_tokens_to_ids("<extra_id_0>")
    for row, given, wanted in zip(found.train.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        assert given[-1] == wanted[-1] == words.eos_token_id
        spans, at = {}, None
        for token in wanted[:-1]:
            if token >= first:
                at = token
                spans[at] = []
            else:
                spans[at].append(token)
        assert list(spans) == list(range(first, first + len(spans)))
        last = spans.pop(max(spans))
        assert last == [] and all(spans.values())
        whole = [part for token in given[:-1] for part in (spans[token] if token >= first else [token])]
        assert whole == row
        assert sum(map(len, spans.values())) == round(32 * 0.15) and len(spans) == round(5 / 3)


def test_parts_are_every_list_of_that_sum_equally_often():
    draw = np.random.default_rng(0)
    seen = {}
    for _ in range(6000):
        parts = tuple(texts._parts(5, 3, draw))
        seen[parts] = seen.get(parts, 0) + 1
    assert len(seen) == 6 and all(sum(parts) == 5 and min(parts) > 0 for parts in seen)
    assert max(abs(count - 1000) for count in seen.values()) < 130  # four standard deviations


def test_halves_are_the_row_in_two_each_with_an_end(words, found):
    inputs, targets = texts.halves(found.train, words)
    assert torch.equal(torch.cat([inputs[:, :-1], targets[:, :-1]], 1), found.train)
    assert (inputs[:, -1] == words.eos_token_id).all() and (targets[:, -1] == words.eos_token_id).all()
