"""Flow, AUC, R_l and confusion against the papers' formulas written out with loops."""

import math

import pytest
import torch
from reference import anchors as literal

from tunescope.probes.anchors.auc import auc, cumulative
from tunescope.probes.anchors.confusion import actual_confusion, predicted_confusion, rank_correlation
from tunescope.probes.anchors.flow import flow
from tunescope.probes.demonstrations.auc import finding


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("labels", [[3, 6], [2, 3, 7]])
def test_flow_is_the_mean_over_the_three_sets_of_pairs_whatever_the_padding(labels):
    n, pad = 10, 4
    row = drawn(n, n)
    padded = torch.full((1, n + pad, n + pad), 1e9, dtype=torch.float64)
    padded[0, pad:, pad:] = row
    real, is_label = torch.zeros(1, n + pad, dtype=torch.bool), torch.zeros(1, n + pad, dtype=torch.bool)
    real[0, pad:] = True
    is_label[0, torch.tensor(labels) + pad] = True
    found = flow(padded, is_label, n + pad - 1, real)
    assert [float(one) for one in found] == pytest.approx(literal.flows(row.tolist(), labels, n - 1), rel=1e-12)
    assert float(found.shares.sum()) == pytest.approx(1)
    if labels == [3, 6]:  # of one token each: as the authors count
        published = literal.published_flows(row.tolist(), labels, n - 1)
        assert [float(one) for one in found] == pytest.approx(published, rel=1e-12)


def test_flow_where_the_text_reads_both_ways_and_the_answer_stands_apart():
    n, pad, labels = 9, 3, [1, 5, 6]
    row = drawn(n, n, seed=2)
    padded = torch.full((1, n + pad, n + pad), 1e9, dtype=torch.float64)  # padding stands between text and answer
    keep = [*range(n - 1), n + pad - 1]
    padded[0, torch.tensor(keep)[:, None], torch.tensor(keep)[None]] = row
    real, is_label = torch.zeros(1, n + pad, dtype=torch.bool), torch.zeros(1, n + pad, dtype=torch.bool)
    real[0, keep], is_label[0, labels] = True, True
    found = flow(padded, is_label, n + pad - 1, real, both_ways=True)
    assert [float(one) for one in found] == pytest.approx(literal.flows_both_ways(row.tolist(), labels), rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_auc_is_the_share_of_pairs_ranked_rightly(classes):
    scores = drawn(40, classes, seed=classes)
    predicted = (drawn(40, seed=9) * classes).long()
    rows, gold = scores.tolist(), predicted.tolist()
    if classes == 2:
        scores = scores.round(decimals=1)  # with ties
        rows = scores.tolist()
        ones = [row[1] for row, own in zip(rows, gold, strict=True) if own == 1]
        expected = literal.area(ones, [row[1] for row, own in zip(rows, gold, strict=True) if own == 0])
    else:
        expected = literal.one_against_one(rows, gold)
    assert auc(scores, predicted) == pytest.approx(expected, rel=1e-12)


def test_auc_of_a_class_that_is_never_predicted_takes_no_part_and_of_one_class_there_is_none():
    scores, predicted = drawn(20, 3) + 0.1, torch.tensor([0, 2] * 10)
    kept = [row[2] for row in scores.tolist()]  # two are left: the second one's own score, as published
    of = [[one for one, own in zip(kept, predicted.tolist(), strict=True) if own == which] for which in (2, 0)]
    assert auc(scores, predicted) == pytest.approx(literal.area(*of))
    scores, predicted = drawn(30, 4) + 0.1, torch.tensor([0, 2, 3] * 10)
    three = [[row[0], row[2], row[3]] for row in scores.tolist()]
    expected = literal.one_against_one(three, [{0: 0, 2: 1, 3: 2}[own] for own in predicted.tolist()])
    assert auc(scores, predicted) == pytest.approx(expected)
    assert math.isnan(auc(scores, torch.zeros(20, dtype=torch.long)))


@pytest.mark.parametrize("classes", [2, 3])
def test_where_no_label_word_is_attended_to_attention_tells_nothing(classes):
    predicted = torch.arange(12) % classes
    assert auc(torch.zeros(12, classes), predicted) == 0.5  # as in a layer whose window does not reach them
    some = torch.zeros(12, classes)
    some[predicted == 1, 1] = 1.0
    assert auc(some, predicted) > 0.8


def test_r_l_by_hand():
    found = cumulative(torch.tensor([0.5, 0.75, 1.0], dtype=torch.float64))
    assert found.tolist() == pytest.approx([0, 1 / 3, 1])
    below = cumulative(torch.tensor([0.4, 0.7, 0.6], dtype=torch.float64))  # the first layer takes away
    assert below.tolist() == pytest.approx([-1 / 2, 1 / 2, 1])
    assert cumulative(torch.tensor([0.4, 0.5])).isnan().all()


@pytest.mark.parametrize("components", [2, 10])
def test_predicted_confusion_is_the_distance_along_the_queries_principal_directions(components):
    queries, keys = drawn(30, 6), drawn(4, 6, seed=1)
    expected = literal.confusion(queries.tolist(), keys.tolist(), components)
    found = predicted_confusion(queries, keys, components)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_actual_confusion_is_the_auc_between_two_classes_rows():
    logits, gold = drawn(30, 3, seed=4), (drawn(30, seed=5) * 3).long()
    chances = logits.softmax(-1)
    found = actual_confusion(logits, gold)
    for a in range(3):
        for b in range(3):
            if a != b:
                ratio = [float(p[a] / (p[a] + p[b])) for p in chances]
                of_a = [r for r, own in zip(ratio, gold.tolist(), strict=True) if own == a]
                of_b = [r for r, own in zip(ratio, gold.tolist(), strict=True) if own == b]
                expected = literal.area(of_a, of_b)  # of a against b; b against a is the same pairs turned round
                assert float(found[a, b]) == pytest.approx(expected, abs=1e-12)
    assert found.diagonal().tolist() == [1, 1, 1]
    assert actual_confusion(logits, torch.zeros(30, dtype=torch.long))[1, 2].isnan()
    far = torch.tensor([[-900.0, -910.0, 0.0], [-920.0, -905.0, 0.0]], dtype=torch.float64)  # the two underflow
    assert actual_confusion(far, torch.tensor([0, 1]))[0, 1] == 1.0


def test_the_rank_correlation_is_over_pairs_of_classes_and_undefined_for_two():
    predicted = torch.tensor([[1, 0.1, 0.5], [0.1, 1, 0.9], [0.5, 0.9, 1]])
    assert rank_correlation(predicted, 2 * predicted) == pytest.approx(1)
    assert rank_correlation(predicted, -predicted) == pytest.approx(-1)
    assert math.isnan(rank_correlation(predicted[:2, :2], predicted[:2, :2]))


def test_the_axis_of_r_l_goes_as_far_as_layers_below_chance_take_it():
    round = {"auc": [0.3, 0.9, 0.5], "cumulative": [-1.0, 1.5, 1.0], "predicted": [3, 3]}
    (curves,) = finding([round]).pictures
    assert (curves.low, curves.high) == (-1.0, 1.5)
    (curves,) = finding([round | {"auc": [0.6, 0.9, 0.5], "cumulative": [0.2, 1.0, 1.0]}]).pictures
    assert (curves.low, curves.high) == (0.0, 1.0)


def test_two_pairs_of_classes_are_too_few_for_a_rank_correlation():
    predicted = torch.tensor([[1, 0.1, 0.5], [0.1, 1, 0.9], [0.5, 0.9, 1]])
    unknown = predicted.clone()
    unknown[1, 2] = unknown[2, 1] = float("nan")  # a class without rows
    assert math.isnan(rank_correlation(predicted, unknown))
