"""ROUGE against rouge_score where it is installed, and against what it gave on E2E texts where it is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_tools import e2e, score, segments

from tunescope.data.metrics._porter import stem
from tunescope.data.metrics._rouge import longest_common

THEIRS = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
words = st.lists(st.sampled_from("abcd"), max_size=80).map(tuple)


@pytest.mark.parametrize(
    ("metric", "value"),
    [("rouge_1", 82.10345975773973), ("rouge_2", 53.33467371833062), ("rouge_l", 63.19663296342899)],
)
def test_rouge_of_e2e_texts_is_rouge_scores(metric, value):
    assert score(metric, *e2e()) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("metric", THEIRS)
@given(segments)
@settings(max_examples=60, deadline=None)
def test_rouge_is_rouge_scores_with_any_number_of_references(metric, some):
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    name = THEIRS[metric]
    scorer = rouge_scorer.RougeScorer([name], use_stemmer=True)
    oracle = np.mean([scorer.score_multi(own, output)[name].fmeasure for output, own in some])
    assert score(metric, [one for one, _ in some], [own for _, own in some]) == pytest.approx(100 * oracle, abs=1e-9)


def test_rouge_by_hand():
    # the cat sat on the mat / the dog sat on a mat: words shared: the, sat, on, mat of 6 and 6
    one = ["the cat sat on the mat"], [["The dog sat on a mat!"]]
    assert score("rouge_1", *one) == pytest.approx(100 * 4 / 6)
    assert score("rouge_2", *one) == pytest.approx(100 * 1 / 5)
    assert score("rouge_l", *one) == pytest.approx(100 * 4 / 6)
    assert score("rouge_2", ["cats running"], [["x", "cat runs"]]) == 100.0  # both are: cat run
    assert score("rouge_1", [""], [["a"]]) == score("rouge_2", ["a"], [["a"]]) == 0.0


@given(words, words)
@settings(max_examples=200, deadline=None)
def test_the_longest_common_subsequence_is_that_of_the_table(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    assert longest_common(a, b) == table[-1, -1]


def test_stems_are_porters_with_the_changes_of_nltk():
    # what nltk 3.10's PorterStemmer gives; all words of the E2E and DART validation sets were compared once
    told = """caresses:caress ponies:poni dies:die cats:cat agreed:agre feed:feed plastered:plaster bled:bled
    motoring:motor sing:sing conflated:conflat troubled:troubl sized:size hopping:hop falling:fall hissing:hiss
    failing:fail filing:file happy:happi sky:sky enjoy:enjoy relational:relat conditional:condit rational:ration
    digitizer:digit radically:radic vileness:vile operator:oper hopefulness:hope geology:geolog triplicate:triplic
    electrical:electr goodness:good revival:reviv adoption:adopt onion:onion communism:commun probate:probat rate:rate
    cease:ceas controlling:control roll:roll died:die spied:spi dying:die news:news succeed:succeed theology:theolog
    skies:sky yyyy:yyyi really:realli family:famili children:children reviews:review"""
    pairs = [one.split(":") for one in told.split()]
    assert [stem(word) for word, _ in pairs] == [root for _, root in pairs]
