"""chrF2 (Popović 2015): how many runs of 1 to 6 characters are shared, as sacrebleu counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import Metric
from tunescope.data.metrics._sacre import counted

if TYPE_CHECKING:
    from tunescope.data.metric import Floats

ORDERS, BETA = 6, 2


def score(sums: Floats, rows: Floats) -> Floats:
    """(n, 18) -> (n,): for each order the output's n-grams, the reference's and those shared.

    Precision and recall are averaged over the orders that both sides have, then joined.
    """
    output, reference, shared = sums.reshape(-1, ORDERS, 3).transpose(2, 0, 1)
    has = (output > 0) & (reference > 0)
    orders = np.maximum(has.sum(-1), 1)
    precision = np.where(has, shared / np.where(has, output, 1), 0).sum(-1) / orders
    recall = np.where(has, shared / np.where(has, reference, 1), 0).sum(-1) / orders
    below = BETA**2 * precision + recall
    return np.asarray(100 * (1 + BETA**2) * precision * recall / np.where(below > 0, below, 1))


METRIC = Metric(
    compared="corpus chrF2 as in sacrebleu: runs of 1 to 6 characters without white space, {case}, of several "
    "references the one that fits best, 0 to 100",
    best=100.0,
    width=3 * ORDERS,
    stats=counted("CHRF", lambda lowercase: {"lowercase": lowercase}),
    score=score,
)
