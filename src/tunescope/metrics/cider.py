"""CIDEr (Vedantam et al. 2015) as COCO's caption metrics and the E2E challenge's script compute it: CIDEr-D.

It is the mean of the rows' own scores once the weights of n-grams are taken from all references of the set, so a
resample of rows keeps those weights: an interval is over rows, not over sets of references.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tunescope.measuring import coco
from tunescope.measuring.grams import Gram, grams
from tunescope.metrics import Metric, mean

if TYPE_CHECKING:
    from tunescope.metrics import Floats

    Counted = tuple[Counter[Gram], list[float]]

ORDERS, WIDTH = 4, 6.0  # WIDTH: of the Gaussian over the difference in length, in pairs of words


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    written, others = coco.prepared(outputs, references)
    return np.asarray([[one] for one in scores(written, others)], dtype=np.float64)


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """The score of every row of tokenised texts, 0 to 10."""
    counted = [[Counter(grams(one.split(), ORDERS)) for one in own] for own in references]
    within = Counter(chain.from_iterable(set().union(*own) for own in counted))
    rows = math.log(len(references))
    by_count = {found: rows - math.log(found) for found in set(within.values())}
    weights = {gram: by_count[found] for gram, found in within.items()}
    found = []
    for output, own in zip(outputs, counted, strict=True):
        written = Counter(grams(output.split(), ORDERS))
        norms = _norms(written, weights, rows)
        likeness = sum(_alike((written, norms), (one, _norms(one, weights, rows)), weights) for one in own)
        found.append(10 / ORDERS * likeness / len(own))
    return found


def _alike(output: Counted, reference: Counted, weights: Mapping[Gram, float]) -> float:
    """The sum over orders of the cosine of the weighted counts, those of the output cut to the reference's."""
    (written, own), (given, other) = output, reference
    shared = [0.0] * (ORDERS + 1)
    for gram, count in written.items():
        most = given.get(gram)
        if most:
            shared[len(gram)] += min(count, most) * most * weights[gram] ** 2
    cosines = sum(both / (a * b) for both, a, b in zip(shared, own, other, strict=True) if both)
    return cosines * math.exp(-((own[0] - other[0]) ** 2) / (2 * WIDTH**2)) if cosines else 0.0


def _norms(counts: Counter[Gram], weights: Mapping[Gram, float], unseen: float) -> list[float]:
    """At each order, of the weighted counts; at 0 how many pairs of words there are."""
    found, pairs = [0.0] * (ORDERS + 1), 0
    for gram, count in counts.items():
        found[len(gram)] += (count * weights.get(gram, unseen)) ** 2
        if len(gram) == 2:
            pairs += count
    return [float(pairs), *(math.sqrt(one) for one in found[1:])]


METRIC = Metric(
    compared="CIDEr-D as in COCO's caption metrics (E2E): PTB tokens without punctuation, case ignored, weights of "
    "n-grams from all references of the set, 0 to 10",
    best=10.0,
    width=1,
    stats=stats,
    score=mean,
    needs=coco.check,
)
