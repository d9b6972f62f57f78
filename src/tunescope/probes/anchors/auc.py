"""Whether attention to label words already tells, layer by layer, what the model will answer."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor


def auc(scores: Tensor, predicted: Tensor) -> float:
    """AUC-ROC of class scores against the model's own prediction (Wang et al. 2023, section 2.3).

    Classes that are never predicted are left out first; NaN where fewer than two remain. Two: of the second one's
    score. More: each row's scores divided by their sum (all alike where none attends), then the mean over all pairs of
    classes of the mean of the two one-against-the-other areas (Hand and Till 2001). It says what attention tells of
    the answer, not that the answer comes from it.

    Args:
        scores: (rows, classes), attention from the last position to each class's label words.
        predicted: (rows,), the class that the model answered.
    """
    kinds = sorted(set(predicted.tolist()))
    if len(kinds) < 2:
        return float("nan")
    scores = scores[:, kinds]
    if len(kinds) == 2:
        return _area(scores[predicted == kinds[1], 1], scores[predicted == kinds[0], 1])
    total = scores.sum(1, keepdim=True)
    shares = torch.where(total > 0, scores / total, torch.ones_like(scores) / len(kinds))
    areas = []
    for a, b in combinations(range(len(kinds)), 2):
        of_a, of_b = shares[predicted == kinds[a]], shares[predicted == kinds[b]]
        areas.append((_area(of_a[:, a], of_b[:, a]) + _area(of_b[:, b], of_a[:, b])) / 2)
    return sum(areas) / len(areas)


def _area(high: Tensor, low: Tensor) -> float:
    """The share of pairs in which the first is the larger, ties counted half."""
    difference = high.double()[:, None] - low.double()[None, :]
    return float(((difference > 0).double() + 0.5 * (difference == 0).double()).mean())


def cumulative(areas: Tensor) -> Tensor:
    """R_l, (layers,): the share of all layers' AUC above one half that is reached by layer l (section 2.3).

    Undefined (NaN) where the layers together do not exceed one half. A layer below one half takes away from it.
    """
    above = (areas - 0.5).cumsum(0)
    return above / above[-1] if float(above[-1]) > 0 else torch.full_like(areas, float("nan"))
