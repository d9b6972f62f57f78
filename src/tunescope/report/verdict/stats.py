"""Paired bootstrap intervals over seeds and test rows, for any metric of summed statistics.

Seeds and rows are crossed (every seed predicts the same rows), so both are drawn again in every resample:
first the seeds, then the rows, and the same draw serves both arms of a comparison. Deviations between seeds
are widened by sqrt(S / (S - 1)), because S seeds drawn from themselves scatter too little.

Simulated coverage of the nominal 95 %: 0.95 and above with 2 or more seeds as long as rows are the larger
source of noise, about 0.90 when the scatter between 2 or 3 seeds is the larger one. With one seed the
interval is over rows only: how sure this one trained artifact's score is, not what another seed would do.

Rows that are all alike scatter not at all, however few they are. Then the rule of three says what they leave open: of n
rows without an exception, up to 1 - 0.05^(1/n) of all rows (about 3/n) may be exceptions, each by the whole scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunescope.data.scores import aggregate_many, scale

Array = NDArray[np.float64]
#: (per-row statistics (rows, k), how often each row counts (n, rows)) -> (n,) scores
Score = Callable[[Array, Array], Array]

RESAMPLES = 2000
_CELLS = 2_000_000  # counts held at once while resampling: 16 MB


@dataclass(frozen=True)
class Interval:
    """A score or a difference, with its percentile interval and what was resampled for it."""

    value: float
    low: float
    high: float
    level: float
    seeds: int
    rows: int
    widened: bool = False  # the rows do not scatter, and the edges are by the rule of three

    @property
    def over(self) -> str:
        return "seeds and rows" if self.seeds > 1 else "rows only"


@dataclass(frozen=True)
class MetricScore:
    """`tasks.metrics.aggregate_many` for one metric, whose scale it knows."""

    metric: str

    def __call__(self, rows: Array, times: Array) -> Array:
        return aggregate_many(self.metric, rows, times)

    @property
    def scale(self) -> float:
        return scale(self.metric)


def scorer(metric: str) -> MetricScore:
    """The `Score` of a metric by its name."""
    return MetricScore(metric)


def mean_score(rows: Array, times: Array) -> Array:
    """The mean of the first statistic: accuracy, exact match."""
    result: Array = times @ rows[:, 0] / times.sum(axis=1)
    return result


def by_seed(runs: Sequence[Mapping[str, Any]]) -> dict[int, Array]:
    """{seed: (rows, k) statistics} of an arm's `runs` in results.json; runs without any are left out."""
    return {int(run["seed"]): np.asarray(run["stats"], dtype=np.float64) for run in runs if run.get("stats")}


def interval(
    runs: Mapping[int, ArrayLike],
    score: Score = mean_score,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean score over seeds, with its interval.

    Args:
        runs: seed -> (rows, k) sufficient statistics; every seed scores the same rows.

    Raises:
        ValueError: no seeds, no rows, or seeds that scored different numbers of rows.
    """
    stacked, scale = _stacked(runs, sorted(runs), "interval"), _scale(score)
    found = _summary(_value(stacked, score), _replicates(stacked, score, resamples, seed), level, stacked, scale)
    return (
        replace(found, low=max(found.low, 0.0), high=min(found.high, max(scale, found.value)))
        if found.widened
        else found
    )


def paired(
    a: Mapping[int, ArrayLike],
    b: Mapping[int, ArrayLike],
    score: Score = mean_score,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Score of `a` minus score of `b` over the seeds that both have, with its interval.

    Raises:
        ValueError: no seed in common, or different numbers of test rows.
    """
    common = sorted(set(a) & set(b))
    if not common:
        raise ValueError(f"paired: the arms have no seed in common: {sorted(a)} and {sorted(b)}.")
    left, right = _stacked(a, common, "paired"), _stacked(b, common, "paired")
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"paired: the arms scored {left.shape[1]} and {right.shape[1]} rows; give the same rows.")
    value = _value(left, score) - _value(right, score)
    # the same seed of the generator, so the same draw of seeds and rows, on both sides
    replicates = _replicates(left, score, resamples, seed) - _replicates(right, score, resamples, seed)
    return _summary(value, replicates, level, left, _scale(score))


def detectable(low: float, high: float, *, level: float = 0.95, power: float = 0.8) -> float:
    """The smallest true difference that a comparison with this interval would find with probability `power`.

    From the interval's half width, as if it were normal: half * (z_level + z_power) / z_level.
    """
    normal = NormalDist()
    z = normal.inv_cdf(0.5 + level / 2)
    return (high - low) / 2 * (z + normal.inv_cdf(power)) / z


def _stacked(runs: Mapping[int, ArrayLike], seeds: Sequence[int], who: str) -> Array:
    """(seeds, rows, k)"""
    arrays = [np.asarray(runs[seed], dtype=np.float64) for seed in seeds]
    arrays = [x[:, None] if x.ndim == 1 else x for x in arrays]
    sizes = sorted({len(x) for x in arrays})
    if len(sizes) != 1 or not sizes[0]:
        raise ValueError(f"{who}: every seed must score the same rows, at least one; the seeds have {sizes} rows.")
    return np.stack(arrays)


def _value(stacked: Array, score: Score) -> float:
    once = np.ones((1, stacked.shape[1]))
    return float(np.mean([score(rows, once)[0] for rows in stacked]))


def _counts(rows: int, resamples: int, generator: np.random.Generator) -> Iterator[Array]:
    """How often each row is drawn, (some resamples, rows) at a time."""
    step = max(1, _CELLS // rows)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = generator.integers(rows, size=(size, rows)) + rows * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)


def _replicates(stacked: Array, score: Score, resamples: int, seed: int) -> Array:
    """(resamples,) scores, each of newly drawn seeds and rows."""
    seeds, rows, _ = stacked.shape
    generator = np.random.default_rng(seed)
    drawn = generator.integers(seeds, size=(resamples, seeds))
    scores = np.concatenate(  # (resamples, seeds)
        [np.stack([score(one, times) for one in stacked], axis=1) for times in _counts(rows, resamples, generator)]
    )
    if seeds == 1:
        return scores[:, 0]
    centre = scores.mean(axis=1)
    resampled = np.take_along_axis(scores, drawn, axis=1).mean(axis=1)
    result: Array = centre + np.sqrt(seeds / (seeds - 1)) * (resampled - centre)
    return result


def _scale(score: Score) -> float:
    return float(getattr(score, "scale", 1.0))


def _summary(value: float, replicates: Array, level: float, stacked: Array, scale: float) -> Interval:
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    alike = bool(scale > 0 and np.ptp(replicates) <= 1e-12 * scale)
    if alike:
        doubt = scale * (1 - (1 - level) ** (1 / stacked.shape[1]))
        low, high = value - doubt, value + doubt
    return Interval(value, float(low), float(high), level, stacked.shape[0], stacked.shape[1], alike)


LEVEL = 0.95
