"""Short answers, held against SQuAD's script (evaluate-v1.1) written out, and by hand; F1 of labels by hand."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from metric_tools import parted, score, segments


def normalize_answer(s):
    s = "".join(ch for ch in s.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s).split())


def f1_score(prediction, ground_truth):
    prediction_tokens, ground_truth_tokens = (normalize_answer(one).split() for one in (prediction, ground_truth))
    num_same = sum((Counter(prediction_tokens) & Counter(ground_truth_tokens)).values())
    if len(prediction_tokens) == 0 or len(ground_truth_tokens) == 0:
        return float(prediction_tokens == ground_truth_tokens)  # as evaluate-v2.0 has it
    if num_same == 0:
        return 0
    precision = num_same / len(prediction_tokens)
    recall = num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


@given(segments)
def test_squad_s_numbers_are_those_of_its_script(some):
    outputs, references = parted(some)
    f1 = [max(f1_score(output, one) for one in own) for output, own in zip(outputs, references, strict=True)]
    exact = [
        max(normalize_answer(output) == normalize_answer(one) for one in own)
        for output, own in zip(outputs, references, strict=True)
    ]
    assert score("squad_f1", outputs, references) == pytest.approx(sum(f1) / len(f1))
    assert score("squad_em", outputs, references) == pytest.approx(sum(exact) / len(exact))


def test_short_answers_by_hand():
    assert score("squad_f1", ["The Eiffel Tower!"], [["Eiffel tower in Paris", "Paris"]]) == pytest.approx(2 * 2 / 6)
    assert score("squad_em", ["the cat."], [["dog", "A Cat"]]) == 1.0
    assert score("squad_em", ["cats"], [["cat"]]) == 0.0
    assert score("squad_f1", ["a"], [["the"]]) == 1.0 and score("squad_f1", [""], [["x"]]) == 0.0


def test_f1_of_true_is_over_all_rows_and_an_illegal_answer_is_not_true():
    outputs = ["True", "True", "False", "true", "True "]
    meant = [["True"], ["False"], ["True"], ["True"], ["True"]]
    assert score("f1_true", outputs, meant) == pytest.approx(2 * 2 / (3 + 4))
    assert score("f1_true", ["False"], [["False"]]) == 0.0
    assert score("f1_true", outputs, meant, lowercase=True) == pytest.approx(2 * 3 / (4 + 4))


def test_f1_of_cb_is_the_mean_over_its_labels_of_which_an_illegal_answer_is_none():
    outputs = ["neutral", "entailment ", "entailment", "yes", "contradiction", "neutral"]
    meant = ["neutral", "entailment", "neutral", "entailment", "neutral", "contradiction"]
    by_label = {"entailment": (1 / 2, 1 / 2), "contradiction": (0, 0), "neutral": (1 / 2, 1 / 3)}  # precision, recall
    each = [2 * p * r / (p + r) if p + r else 0.0 for p, r in by_label.values()]
    assert score("f1_cb", outputs, [[one] for one in meant]) == pytest.approx(sum(each) / 3)
    assert score("f1_cb", ["neutral"], [["neutral"]]) == pytest.approx(1 / 3)
    assert score("f1_cb", ["Neutral"], [["neutral"]]) == 0.0


def test_punctuation_goes_before_articles_so_that_what_it_joins_is_one_word():
    assert score("squad_em", ["vitamin A-rich food"], [["vitamin rich food"]]) == 0.0  # "arich", as in the script
    assert score("squad_em", ["Chick-fil-A"], [["chickfila"]]) == 1.0
