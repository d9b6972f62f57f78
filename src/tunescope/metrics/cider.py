"""CIDEr (Vedantam et al. 2015) as COCO's caption metrics and the E2E challenge's script compute it: CIDEr-D.

It is the mean of the rows' own scores once the weights of n-grams are taken from all references of the set, so a
resample of rows keeps those weights: an interval is over rows, not over sets of references.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunescope.measuring import coco
from tunescope.metrics import Metric, mean

if TYPE_CHECKING:
    from tunescope.metrics import Floats

    Gram = tuple[str, ...]

ORDERS, WIDTH = 4, 6.0  # WIDTH: of the Gaussian over the difference in length, in pairs of words


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    written, others = coco.prepared(outputs, references)
    return np.asarray([[one] for one in scores(written, others)], dtype=np.float64)


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """The score of every row of tokenised texts, 0 to 10."""
    counted = [[_grams(one) for one in own] for own in references]
    within = Counter(gram for own in counted for gram in set().union(*own))
    rows = math.log(len(references))
    weights = {gram: rows - math.log(found) for gram, found in within.items()}
    return [
        10 / ORDERS * sum(_alike(_grams(output), one, weights, rows) for one in own) / len(own)
        for output, own in zip(outputs, counted, strict=True)
    ]


def _grams(text: str) -> Counter[Gram]:
    words = text.split()
    return Counter(tuple(words[at : at + n]) for n in range(1, ORDERS + 1) for at in range(len(words) - n + 1))


def _alike(output: Counter[Gram], reference: Counter[Gram], weights: Mapping[Gram, float], unseen: float) -> float:
    """The sum over orders of the cosine of the weighted counts, those of the output cut to the reference's."""
    shared = [0.0] * (ORDERS + 1)
    for gram, count in output.items():
        if gram in reference:
            shared[len(gram)] += min(count, reference[gram]) * reference[gram] * weights[gram] ** 2
    if not any(shared):
        return 0.0
    own, other = _norms(output, weights, unseen), _norms(reference, weights, unseen)
    cosines = sum(both / (a * b) for both, a, b in zip(shared, own, other, strict=True) if both)
    return cosines * math.exp(-((_pairs(output) - _pairs(reference)) ** 2) / (2 * WIDTH**2))


def _norms(counts: Counter[Gram], weights: Mapping[Gram, float], unseen: float) -> list[float]:
    found = [0.0] * (ORDERS + 1)
    for gram, count in counts.items():
        found[len(gram)] += (count * weights.get(gram, unseen)) ** 2
    return [math.sqrt(one) for one in found]


def _pairs(counts: Counter[Gram]) -> int:
    return sum(count for gram, count in counts.items() if len(gram) == 2)


METRIC = Metric(
    compared="CIDEr-D as in COCO's caption metrics (E2E): PTB tokens without punctuation, case ignored, weights of "
    "n-grams from all references of the set, 0 to 10",
    best=10.0,
    width=1,
    stats=stats,
    score=mean,
    needs=coco.check,
)
