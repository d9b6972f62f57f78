"""Scores of summed statistics, by the metric's name: accuracy here, those of written texts from `metrics/`.

``stats`` of one row for accuracy: (correct, label, predicted).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import find_metric, mean, metric_names
from tunescope.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

ACCURACY = "accuracy"


def aggregate(metric: str, stats: ArrayLike) -> dict[str, float]:
    """The metric over all rows first, then its companions (balanced accuracy and macro F1 for accuracy).

    Raises:
        UserError: an unknown metric, or no rows.
    """
    table = _table(metric, stats)
    values = {metric: float(of_sums(metric, [table.sum(0)], [len(table)])[0])}
    return {**values, **_per_class(table)} if metric == ACCURACY else values


def of_sums(metric: str, sums: ArrayLike, counts: ArrayLike) -> Floats:
    """(n,) values of the metric of sums of rows (n, width of the statistics), `counts` rows in each."""
    _table(metric, sums)
    return _score(metric)(np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64))


def of_rows(metric: str, stats: ArrayLike) -> list[float]:
    """The metric of each row, as if the row were the whole set."""
    table = _table(metric, stats)
    return [float(value) for value in _score(metric)(table, np.ones(len(table)))]


def statistics(
    metric: str, outputs: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> list[tuple[float, ...]]:
    """The statistics of each output, compared with its references.

    Raises:
        UserError: an unknown metric, or one that runs on what is not installed.
    """
    if not outputs:
        return []
    return [tuple(row) for row in find_metric(metric).stats(outputs, references, lowercase).tolist()]


def scale(metric: str) -> float:
    """The best value; the worst is 0. For NIST, which has no best one, a usual value."""
    return find_metric(metric).best if metric in metric_names() else 1.0


def is_bounded(metric: str) -> bool:
    """Whether `scale` is the largest value there is."""
    return metric not in metric_names() or find_metric(metric).is_bounded


def is_lower_better(metric: str) -> bool:
    return metric in metric_names() and not find_metric(metric).higher_is_better


def _score(metric: str) -> Callable[[Floats, Floats], Floats]:
    return mean if metric == ACCURACY else find_metric(metric).score


def _table(metric: str, stats: ArrayLike) -> Floats:
    if metric != ACCURACY and metric not in metric_names():
        raise UserError(f"Unknown metric '{metric}'. Allowed: {ACCURACY}, {', '.join(metric_names())}.")
    width = 3 if metric == ACCURACY else find_metric(metric).width
    table = np.asarray(stats, dtype=np.float64)
    if table.ndim != 2 or not len(table) or table.shape[1] != width:
        raise UserError(f"{metric} needs at least one row of {width} statistics, not shape {table.shape}.")
    return table


def _per_class(table: Floats) -> dict[str, float]:
    """Balanced accuracy: mean recall over the labels that occur. Macro F1: over those and the predicted."""
    _, labels, predicted = table.T
    recalls, scores = [], []
    for one in np.union1d(labels, predicted):
        both = float(((labels == one) & (predicted == one)).sum())
        of_label, of_predicted = float((labels == one).sum()), float((predicted == one).sum())
        scores.append(2 * both / (of_label + of_predicted))
        if of_label:
            recalls.append(both / of_label)
    return {"balanced_accuracy": float(np.mean(recalls)), "macro_f1": float(np.mean(scores))}
