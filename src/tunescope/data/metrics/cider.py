"""CIDEr (Vedantam et al. 2015) as COCO's caption metrics and the E2E challenge's script compute it: CIDEr-D.

It is the mean of the rows' own scores once the weights of n-grams are taken from all references of the set, so the
score of fewer rows keeps those weights: an interval is over rows, not over sets of references.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import Metric, mean
from tunescope.data.metrics import _coco

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tunescope.data.metric import Floats

    Integers = NDArray[np.int64]


ORDERS, WIDTH = 4, 6.0  # WIDTH: of the Gaussian over the difference in length, in pairs of words


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    return scores(*_coco.prepared(outputs, references))[:, None]


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """(rows,) of tokenised texts, 0 to 10."""
    row = np.repeat(np.arange(len(outputs)), [len(own) for own in references])  # of each reference
    texts = [one.split() for one in (*outputs, *(one for own in references for one in own))]
    pairs = np.maximum(np.array([len(one) for one in texts]) - 1, 0)
    alike = sum((_cosines(one, row, len(outputs)) for one in counted(texts, ORDERS)), np.zeros(len(row)))
    alike *= np.exp(-((pairs[row] - pairs[len(outputs) :]) ** 2) / (2 * WIDTH**2))
    return np.asarray(10 / ORDERS * np.bincount(row, alike, len(outputs)) / np.bincount(row))


def _cosines(grams: Counts, row: Integers, n_rows: int) -> Floats:
    """(references,): the cosine of weighted counts of an output and each reference, the output's cut to those.

    The texts counted are the outputs, then the references, which stand in these rows.
    """
    n_own = int(np.searchsorted(grams.text, n_rows))
    places = np.concatenate([np.arange(n_rows), row])[grams.text] * grams.n_grams + grams.gram
    within = np.bincount(np.unique(places[n_own:]) % grams.n_grams, minlength=grams.n_grams)
    weights = (math.log(n_rows) - np.log(np.maximum(within, 1)))[grams.gram]
    norms = np.sqrt(np.bincount(grams.text, (grams.count * weights) ** 2, n_rows + len(row)))
    at = np.searchsorted(places[:n_own], places[n_own:])
    own = np.append(grams.count[:n_own], 0)[at] * (np.append(places[:n_own], -1)[at] == places[n_own:])
    both = np.minimum(own, grams.count[n_own:]) * grams.count[n_own:] * weights[n_own:] ** 2
    shared = np.bincount(grams.text[n_own:] - n_rows, both, len(row))
    length = norms[row] * norms[n_rows:]
    return np.asarray(shared / np.where(length > 0, length, 1))


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order: in which text, which of `n_grams` there are, how often; sorted by text and gram."""

    text: Integers
    gram: Integers
    count: Integers
    n_grams: int


def counted(texts: Sequence[Sequence[str]], longest: int) -> Iterator[Counts]:
    """The counts at the orders 1 to `longest`."""
    vocabulary: dict[str, int] = {}
    words = np.array([vocabulary.setdefault(word, len(vocabulary)) for text in texts for word in text], dtype=np.int64)
    text = np.repeat(np.arange(len(texts)), [len(one) for one in texts])
    starts, grams, n_grams = np.arange(len(words)), words, max(1, len(vocabulary))
    for order in range(1, longest + 1):
        if order > 1:
            is_whole = starts + order - 1 < len(words)
            is_whole[is_whole] = text[starts[is_whole] + order - 1] == text[starts[is_whole]]
            starts, front = starts[is_whole], grams[is_whole]
            different, grams = np.unique(front * len(vocabulary) + words[starts + order - 1], return_inverse=True)
            n_grams = max(1, len(different))
        found, count = np.unique(text[starts] * n_grams + grams, return_counts=True)
        yield Counts(found // n_grams, found % n_grams, count, n_grams)


METRIC = Metric(
    compared="CIDEr-D as in COCO's caption metrics (E2E): PTB tokens without punctuation, case ignored, weights of "
    "n-grams from all references of the set, 0 to 10",
    best=10.0,
    width=1,
    stats=stats,
    score=mean,
    needs=_coco.check,
)
