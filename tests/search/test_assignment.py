"""Words to classes: the search against every assignment, tried one by one."""

import itertools
import time

import pytest
import torch

from tunescope.search.methods import _assignment
from tunescope.search.methods._assignment import WordChoice, assignments


def drawn(seed, n_classes, n_listed, n_words, n_rows):
    g = torch.Generator().manual_seed(seed)
    scores = (2 * torch.randn(n_rows, n_words, generator=g, dtype=torch.float64)).log_softmax(-1)
    labels = torch.randint(n_classes, (n_rows,), generator=g)
    lists = [torch.randperm(n_words, generator=g)[:n_listed].tolist() for _ in range(n_classes)]
    return WordChoice(scores, labels, tuple(map(tuple, lists)))


def literal(asked, keep):
    """Every product of the shortlists, row by row; (correct, loss, columns), best first."""
    found = []
    for ranks in itertools.product(*(range(len(one)) for one in asked.shortlists)):
        columns = tuple(one[rank] for one, rank in zip(asked.shortlists, ranks, strict=True))
        if len(set(columns)) < len(columns):
            continue
        correct, loss = 0, 0.0
        for row, label in zip(asked.scores, asked.labels.tolist(), strict=True):
            chances = [row[column].exp().item() for column in columns]
            correct += chances.index(max(chances)) == label
            loss -= (row[columns[label]] - torch.tensor(chances, dtype=torch.float64).sum().log()).item()
        found.append((-correct, loss, ranks, columns))
    return [(-correct, loss, columns) for correct, loss, _, columns in sorted(found)[:keep]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(2, 9, 11, 30), (3, 5, 6, 17)])
def test_small_products_are_all_tried(seed, sizes):
    asked = drawn(seed, *sizes)
    for got, (correct, loss, columns) in zip(assignments(asked, 7, 0), literal(asked, 7), strict=True):
        assert (got.correct, got.columns) == (correct, columns)
        assert got.loss == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(3, 6, 6, 20), (3, 7, 12, 20), (4, 4, 4, 15)])
def test_the_search_finds_the_best_of_all_products(monkeypatch, seed, sizes):
    monkeypatch.setattr(_assignment, "EXACT", 0)
    asked = drawn(seed, *sizes)
    got = assignments(asked, 5, seed=1)
    expected = literal(asked, 10**6)
    assert (got[0].correct, got[0].columns) == (expected[0][0], expected[0][2])
    for one in got:  # what is told of each is true of it, and they are in order
        [alone] = [found for found in expected if found[2] == one.columns]
        assert one.correct == alone[0]
        assert one.loss == pytest.approx(alone[1], abs=1e-9)
    assert [(-one.correct, one.loss) for one in got] == sorted((-one.correct, one.loss) for one in got)


@pytest.mark.parametrize("exact", [0, 4096])
def test_of_equal_scores_the_earlier_class_is_answered_and_of_equal_words_the_earlier_taken(monkeypatch, exact):
    monkeypatch.setattr(_assignment, "EXACT", exact)
    scores = torch.tensor([[-1.0, -1.0, -1.0, -1.0]] * 4, dtype=torch.float64)
    asked = WordChoice(scores, torch.tensor([0, 0, 1, 2]), ((3, 2, 1, 0),) * 3)
    best = assignments(asked, 24, 0)
    assert {one.correct for one in best} == {2}
    assert [one.columns for one in best] == list(itertools.permutations((3, 2, 1, 0), 3))


def test_words_of_one_list_are_never_given_twice():
    asked = WordChoice(torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 3, ((0, 1, 2),) * 3)
    assert {tuple(sorted(one.columns)) for one in assignments(asked, 99, 0)} == {(0, 1, 2)}
    assert len(assignments(asked, 99, 0)) == 6


def test_six_classes_of_a_hundred_words_take_seconds():
    asked = drawn(0, 6, 100, 300, 96)
    began = time.process_time()
    found = assignments(asked, 20, 0)
    assert time.process_time() - began < 15
    assert len({one.columns for one in found}) == 20
    assert all(len(set(one.columns)) == 6 for one in found)
    assert assignments(asked, 20, 0) == found


def test_the_first_start_takes_the_first_word_that_is_left_whatever_the_seed(monkeypatch):
    monkeypatch.setattr(_assignment, "EXACT", 0)
    monkeypatch.setattr(_assignment, "STARTS", 1)
    started = []
    climbed = _assignment._climbed
    monkeypatch.setattr(_assignment, "_climbed", lambda asked, at, best: (started.append(at), climbed(asked, at, best)))
    asked = WordChoice(torch.zeros(1, 5, dtype=torch.float64), torch.zeros(1).long(), ((3, 1, 0), (3, 4, 2), (1, 2, 4)))
    for seed in range(5):
        assignments(asked, 3, seed)
    assert started == [(3, 4, 1)] * 5
