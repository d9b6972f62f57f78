"""NIST-5 (Doddington 2002): rare n-grams count for more. As in the E2E challenge's own script (mteval-v13a's formula).

The Perl script with references of unequal number divides by the largest number of them, so that its length penalty is
1; here, as in the challenge's script in Python, the length is compared with the mean over each row's own references.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import Metric

if TYPE_CHECKING:
    from tunescope.data.metric import Floats

Gram = tuple[str, ...]
REPLACED = (("<skipped>", ""), ("-\n", ""), ("\n", " "), ("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
APART = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),  # punctuation, but for period, comma, dash, apostrophe
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)

ORDERS = 5
BETA = math.log(0.5) / math.log(1.5) ** 2  # an output of two thirds of the length keeps half


@dataclass(frozen=True)
class Seen:
    """How often the outputs' n-grams of 1 to 5 tokens stand in the references of the set, which have so many tokens."""

    counts: Mapping[Gram, int]
    tokens: int

    def information(self, gram: Gram) -> float:
        """log2 of how often what stands in front of its last word occurs for each time that the n-gram does."""
        front = self.counts[gram[:-1]] if len(gram) > 1 else self.tokens
        return math.log2(front / self.counts[gram])


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 11): information of the matches by order, n-grams of the output by order, mean length of references."""
    tokenised = [[tokens(one) for one in own] for own in references]
    everything = [one for own in tokenised for one in own]
    written = set(chain.from_iterable(grams(tokens(output), ORDERS) for output in outputs))
    counts = Counter(gram for one in everything for gram in grams(one, ORDERS) if gram in written)
    seen = Seen(counts, sum(map(len, everything)))
    rows = [_row(tokens(output), own, seen) for output, own in zip(outputs, tokenised, strict=True)]
    return np.asarray(rows, dtype=np.float64)


def _row(output: Gram, references: Sequence[Gram], seen: Seen) -> list[float]:
    written = Counter(grams(output, ORDERS))
    most: dict[Gram, int] = {}
    for one in references:
        for gram, count in Counter(gram for gram in grams(one, ORDERS) if gram in written).items():
            most[gram] = max(count, most.get(gram, 0))
    matched = [0.0] * ORDERS
    for gram, count in most.items():
        matched[len(gram) - 1] += seen.information(gram) * min(count, written[gram])
    totals = [max(0, len(output) - n) for n in range(ORDERS)]
    return [*matched, *totals, sum(map(len, references)) / len(references)]


def score(sums: Floats, rows: Floats) -> Floats:
    matched, totals, reference = sums[:, :ORDERS], sums[:, ORDERS : 2 * ORDERS], sums[:, -1]
    ratio = np.minimum(1, totals[:, 0] / np.where(reference > 0, reference, 1))
    penalty = np.where(ratio > 0, np.exp(BETA * np.log(np.where(ratio > 0, ratio, 1)) ** 2), 0)
    return np.asarray(penalty * (matched / np.maximum(totals, 1)).sum(-1))


def grams(words: Sequence[str], longest: int) -> Iterator[Gram]:
    """Every run of 1 to `longest` tokens, as often as it occurs."""
    return chain.from_iterable(zip(*(words[at:] for at in range(n)), strict=False) for n in range(1, longest + 1))


@lru_cache(maxsize=1 << 16)
def tokens(text: str) -> tuple[str, ...]:
    """The text's tokens in lower case; a period or comma between digits stays with them."""
    for old, new in REPLACED:
        text = text.replace(old, new)
    text = f" {text} "
    for pattern, apart in APART:
        text = pattern.sub(apart, text)
    return tuple(text.lower().split())


METRIC = Metric(
    compared="NIST-5 as in the E2E challenge's script (mteval-v13a): its tokenisation, case ignored, information taken "
    "from all references of the set, from 0, without an upper end",
    best=10.0,
    width=2 * ORDERS + 1,
    stats=stats,
    score=score,
    is_bounded=False,
)
