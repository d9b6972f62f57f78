"""NIST-5 (Doddington 2002): rare n-grams count for more. As in the E2E challenge's own script (mteval-v13a's formula).

The Perl script with references of unequal number divides by the largest number of them, so that its length penalty is
1; here, as in the challenge's script in Python, the length is compared with the mean over each row's own references.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunescope.measuring.mteval import tokens
from tunescope.metrics import Metric

if TYPE_CHECKING:
    from tunescope.metrics import Floats

    Gram = tuple[str, ...]

ORDERS = 5
BETA = math.log(0.5) / math.log(1.5) ** 2  # an output of two thirds of the length keeps half


def grams(text: str) -> Counter[Gram]:
    """Every n-gram of 1 to 5 tokens, with its count."""
    words = tokens(text)
    return Counter(words[at : at + n] for n in range(1, ORDERS + 1) for at in range(len(words) - n + 1))


def information(counts: Counter[Gram], n_words: int) -> dict[Gram, float]:
    """log2 of how often what stands in front of an n-gram's last word occurs for each time that the n-gram does."""
    return {
        gram: math.log2((counts[gram[:-1]] if len(gram) > 1 else n_words) / count) for gram, count in counts.items()
    }


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 11): information of the matches by order, n-grams of the output by order, mean length of references."""
    weights = information(
        sum_of([grams(one) for own in references for one in own]),
        sum(len(tokens(one)) for own in references for one in own),
    )
    rows = [_row(output, own, weights) for output, own in zip(outputs, references, strict=True)]
    return np.asarray(rows, dtype=np.float64)


def sum_of(counts: Sequence[Counter[Gram]]) -> Counter[Gram]:
    total: Counter[Gram] = Counter()
    for one in counts:
        total.update(one)
    return total


def _row(output: str, references: Sequence[str], weights: dict[Gram, float]) -> list[float]:
    most: Counter[Gram] = Counter()
    for one in references:
        most |= grams(one)
    matched = [0.0] * ORDERS
    for gram, count in grams(output).items():
        if gram in most:
            matched[len(gram) - 1] += weights[gram] * min(count, most[gram])
    length = len(tokens(output))
    totals = [max(0, length - n) for n in range(ORDERS)]
    return [*matched, *totals, sum(len(tokens(one)) for one in references) / len(references)]


def score(sums: Floats, rows: Floats) -> Floats:
    matched, totals, reference = sums[:, :ORDERS], sums[:, ORDERS : 2 * ORDERS], sums[:, -1]
    ratio = np.minimum(1, totals[:, 0] / np.where(reference > 0, reference, 1))
    penalty = np.where(ratio > 0, np.exp(BETA * np.log(np.where(ratio > 0, ratio, 1)) ** 2), 0)
    return np.asarray(penalty * (matched / np.maximum(totals, 1)).sum(-1))


METRIC = Metric(
    compared="NIST-5 as in the E2E challenge's script (mteval-v13a): its tokenisation, case ignored, information taken "
    "from all references of the set, from 0, without an upper end",
    best=10.0,
    width=2 * ORDERS + 1,
    stats=stats,
    score=score,
)
