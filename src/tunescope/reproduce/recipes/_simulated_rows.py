"""Rows of arms made up for `interval_coverage`: the mean of each arm over seeds and rows is known exactly."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SHARED = 0.8  # of an arm's answers at a seed come of the row's own difficulty, the rest of chance


@dataclass(frozen=True)
class Kind:
    """A metric's made-up rows.

    draw: (generator, score of each seed (seeds,), what all arms share of the rows) -> (seeds, rows, statistics).
    common: (generator, rows) -> what all arms share.
    noise: of a score over so many rows the variance that seeds do not share; of BLEU as it is measured at .4.
    """

    draw: Callable[[np.random.Generator, Array, Array], Array]
    common: Callable[[np.random.Generator, int], Array]
    noise: Callable[[Array, int], Array]


def seed_scores(generator: np.random.Generator, mean: float, deviation: float, seeds: int) -> Array:
    """(seeds,) scores between 0 and 1 of exactly this mean and deviation.

    They are beta: near 1 most are high and few are low.
    """
    if not deviation:
        return np.full(seeds, mean)
    size = mean * (1 - mean) / deviation**2 - 1
    return generator.beta(mean * size, (1 - mean) * size, seeds)


def _uniform(generator: np.random.Generator, rows: int) -> Array:
    return generator.random(rows)


def _right(generator: np.random.Generator, scores: Array, difficulty: Array) -> Array:
    """Right where the row's difficulty, or in one case of five a fresh one, is below the seed's score."""
    shape = (len(scores), len(difficulty))
    fresh = generator.random(shape)
    own = np.where(generator.random(shape) < SHARED, difficulty, fresh)
    return (own < scores[:, None]).astype(np.float64)[:, :, None]


def _graded(generator: np.random.Generator, scores: Array, difficulty: Array) -> Array:
    """What is missing to 1 is spread over rows by the row's difficulty and as much chance."""
    chance = generator.random((len(scores), len(difficulty)))
    return (1 - (1 - scores[:, None]) * (difficulty + chance))[:, :, None]


def _n_grams(generator: np.random.Generator, scores: Array, difficulty: Array) -> Array:
    """BLEU's statistics of outputs of 12 words, whose corpus BLEU is 100 times the score: lengths, hits, n-grams."""
    shape = (len(scores), len(difficulty))
    lengths = np.full((2, *shape), 12.0)
    totals = [np.full(shape, 13.0 - n) for n in range(1, 5)]
    hits = []
    for n, total in enumerate(totals, 1):
        share = scores[:, None] ** (n / 2.5) * (0.7 + 0.6 * difficulty)
        hits.append(generator.binomial(total.astype(int), np.minimum(share, 1.0)).astype(np.float64))
    return np.stack([*lengths, *hits, *totals], -1)


KINDS = {
    "accuracy": Kind(_right, _uniform, lambda scores, rows: (1 - SHARED**2) * scores * (1 - scores) / rows),
    "row scores": Kind(_graded, _uniform, lambda scores, rows: (1 - scores) ** 2 / 12 / rows),
    "BLEU": Kind(_n_grams, _uniform, lambda scores, rows: np.full(len(scores), 0.0068 / rows)),
}


def side_scores(generator: np.random.Generator, kind: Kind, scores: Array, rows: int) -> Array:
    """Test scores of an arm beside the two compared, of which only the scatter counts."""
    return scores + generator.normal(size=len(scores)) * np.sqrt(kind.noise(scores, rows))
