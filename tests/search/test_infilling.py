"""The joint beam against every filling there is, each scored by transformers alone, text by text."""

import copy
import itertools
import math
from dataclasses import replace

import masked
import pytest
import torch
from apple import on_apple

from tunescope.errors import UserError
from tunescope.search.methods._infilling import Allowed, filled, sentinels


@pytest.fixture(scope="module")
def t5():
    return masked.make("t5")


def asked(tokenizer, n_spans, most):
    """(texts, what may be written): three texts of different lengths, three tokens to write with."""
    marks = sentinels(tokenizer, n_spans + 1)
    ends = ["<extra_id_0> great" + (" <extra_id_1>" if n_spans == 2 else "")] * 3
    fronts = ["the film was good in every way", "bad", "not a plot"]
    texts = [tuple(tokenizer(f"{one} {end}")["input_ids"]) for one, end in zip(fronts, ends, strict=True)]
    words = tuple(tokenizer.convert_tokens_to_ids(["▁it", "▁was", "."]))
    return texts, Allowed(marks, tokenizer.eos_token_id, words, most)


def log_probability(model, text, written, first):
    """log p(written | text, <pad> <extra_id_0>), by one teacher-forced pass of transformers."""
    decoder = torch.tensor([[0, first, *written[:-1]]])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([text]), decoder_input_ids=decoder).logits[0, 1:]
    return logits.log_softmax(-1)[torch.arange(len(written)), list(written)].sum().item()


def every(model, texts, allowed):
    """{spans: mean score}, the better of a sentinel and </s> at the end; all fillings of at most `most` tokens."""
    scores = {}
    for lengths in itertools.product(range(allowed.most + 1), repeat=allowed.n_spans):
        if sum(lengths) > allowed.most:
            continue
        for words in itertools.product(allowed.text, repeat=sum(lengths)):
            spans, rest = [], list(words)
            for length in lengths:
                spans.append(tuple(rest[:length]))
                rest = rest[length:]
            for end in (allowed.sentinels[-1], allowed.end):
                written = []
                for span, mark in zip(spans, (*allowed.sentinels[1:-1], end), strict=True):
                    written += [*span, mark]
                sums = [log_probability(model, text, written, allowed.sentinels[0]) for text in texts]
                scores[tuple(spans)] = max(scores.get(tuple(spans), -math.inf), sum(sums) / len(texts))
    return scores


@pytest.mark.parametrize(("n_spans", "most"), [(1, 3), (2, 2)])
def test_a_wide_beam_finds_every_filling_in_the_order_of_its_summed_log_probability(t5, n_spans, most):
    model, tokenizer = t5
    texts, allowed = asked(tokenizer, n_spans, most)
    expected = every(model, texts, allowed)
    got = filled(model, tokenizer, texts, allowed, beam=1000)
    assert {one.spans for one in got} == set(expected)
    for one in got:
        assert one.score == pytest.approx(expected[one.spans], abs=1e-9)
    assert [one.spans for one in got] == sorted(expected, key=expected.get, reverse=True)


def test_of_fillings_that_are_as_likely_the_smaller_tokens_come_first():
    model, tokenizer = masked.make("t5")
    model = copy.deepcopy(model)
    model.lm_head.weight.data.zero_()  # any token is as likely as any other
    texts, allowed = asked(tokenizer, 1, 1)
    backwards = replace(allowed, text=tuple(sorted(allowed.text, reverse=True)))
    got = filled(model, tokenizer, texts, backwards, beam=1000)
    assert [one.spans for one in got] == [((),), *(((token,),) for token in sorted(allowed.text))]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_narrow_beam_keeps_the_best_of_every_step(t5, beam):
    model, tokenizer = t5
    texts, allowed = asked(tokenizer, 2, 3)
    first, ends = allowed.sentinels[0], ((allowed.sentinels[1],), (allowed.sentinels[2], allowed.end))
    kept = [()]
    while True:  # written from the definition: a filling is a tuple of tokens, scored anew from its beginning
        fresh = []
        for written in kept:
            marks = sum(token in allowed.sentinels for token in written)
            if written and (marks == 2 or written[-1] == allowed.end):
                fresh.append(written)
                continue
            n_text = sum(token in allowed.text for token in written)
            more = (*ends[marks], *(allowed.text if n_text < allowed.most else ()))
            fresh += [(*written, token) for token in more]
        scored = {one: sum(log_probability(model, text, one, first) for text in texts) / 3 for one in fresh}
        fresh = sorted(fresh, key=lambda one: (-scored[one], one))[:beam]
        if fresh == kept:
            break
        kept = fresh
    got = filled(model, tokenizer, texts, allowed, beam)
    assert got[0].tokens == kept[0]
    assert {one.tokens for one in got} <= set(kept)
    assert {one.spans for one in got} == {
        tuple(
            tuple(token for token in part if token in allowed.text)
            for part in (one[: one.index(ends[0][0])], one[one.index(ends[0][0]) :])
        )
        for one in kept
    }


def test_many_texts_are_read_in_parts_and_each_counts_the_same(t5, monkeypatch):
    model, tokenizer = t5
    texts, allowed = asked(tokenizer, 2, 2)
    expected = filled(model, tokenizer, texts, allowed, 5)
    for rows in (1, 2, 6):
        monkeypatch.setattr("tunescope.search.methods._infilling.ROWS", rows)
        got = filled(model, tokenizer, texts * 2, allowed, 5)
        assert [one.spans for one in got] == [one.spans for one in expected]
        assert [one.score for one in got] == pytest.approx([one.score for one in expected], abs=1e-10)


def test_a_device_without_float64_gives_the_same():
    model, tokenizer = masked.make("t5", dtype=torch.float32)
    texts, allowed = asked(tokenizer, 1, 2)
    expected = filled(model, tokenizer, texts, allowed, beam=5)
    with on_apple(model):
        assert filled(model, tokenizer, texts, allowed, beam=5) == expected


def test_a_tokenizer_without_sentinels_is_refused():
    with pytest.raises(
        UserError, match=r"this tokenizer has no <extra_id_2>\. Give the folder of a T5, as in template:gen"
    ):
        sentinels(masked.byte_level(), 3)
