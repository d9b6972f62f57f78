"""Intervals of scores and of paired differences over seeds and test rows, for any metric of summed statistics.

Seeds and rows are crossed: every seed answers the same rows. A row's part in a metric of sums is its jackknife
pseudo-value, n * score(all) - (n - 1) * score(all but it), which for a mean is the row's own score. How far the mean of
these over seeds and rows can be off is told by `variance.py`.

Simulated coverage of the nominal 95 % is in results/interval-coverage.json (`tunescope reproduce interval-coverage`).
With one seed an interval is over rows only: how sure this one trained artifact's score is, not what another seed would
do.

Rows that are all alike scatter not at all, however few they are. Then the rule of three says what they leave open: of n
rows without an exception, up to 1 - 0.05^(1/n) of all rows (about 3/n) may be exceptions, each by the whole scale.
So they may where an answer differs at some seed, and no row's at half of them: a stray answer is no exception that was
seen, and the interval of a difference is no narrower for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tunescope.data import scores
from tunescope.report.verdict.variance import Array, Pool, Scatter, pooled, quantile, scatter

LEVEL = 0.95

#: (sums of the rows' statistics (n, k), rows in each sum (n,)) -> (n,) scores
Score = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Interval:
    """A score or a difference with its interval.

    error, freedom: its standard error, and how many degrees of freedom that has.
    parts: of the error's square, what more seeds, more rows, or either would lower.
    widened: no row is an exception, and the edges are by the rule of three, which more rows alone bring nearer.
    """

    value: float
    low: float
    high: float
    level: float
    seeds: int
    rows: int
    widened: bool = False
    error: float = 0.0
    freedom: float = math.inf
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def over(self) -> str:
        return "seeds and rows" if self.seeds > 1 else "rows only"


@dataclass(frozen=True)
class MetricScore:
    """`data.scores.of_sums` for one metric, whose scale it knows."""

    metric: str

    def __call__(self, sums: Array, counts: Array) -> Array:
        return scores.of_sums(self.metric, sums, counts)

    @property
    def scale(self) -> float:
        return scores.scale(self.metric)

    @property
    def is_bounded(self) -> bool:
        """Whether nothing is above the scale."""
        return scores.is_bounded(self.metric)


def scorer(metric: str) -> MetricScore:
    """The `Score` of a metric by its name."""
    return MetricScore(metric)


def mean_score(sums: Array, counts: Array) -> Array:
    """The mean of the first statistic: accuracy, exact match."""
    result: Array = sums[:, 0] / counts
    return result


def by_seed(runs: Sequence[Mapping[str, Any]]) -> dict[int, Array]:
    """{seed: (rows, k) statistics} of an arm's `runs` in results.json; runs without any are left out."""
    return {int(run["seed"]): np.asarray(run["stats"], dtype=np.float64) for run in runs if run.get("stats")}


def interval(
    runs: Mapping[int, ArrayLike],
    score: Score = mean_score,
    *,
    level: float = LEVEL,
    pool: Pool | None = None,
    inputs: Sequence[int] | None = None,
) -> Interval:
    """The mean score over seeds, with its interval.

    A score's interval is Wilson's, for as many rows as would leave its standard error: near an end of the scale it is
    not symmetric, and it stays within. That of a metric without an upper end (TER, NIST) is Student's, from 0 on.

    Args:
        runs: seed -> (rows, k) sufficient statistics; every seed scores the same rows.
        pool: how far the seeds of all trained arms scatter.
        inputs: of each row the number of its input, as `by_input` has it.

    Raises:
        ValueError: no seeds, no rows, or seeds that scored different numbers of rows.
    """
    stacked = _stacked(runs, sorted(runs), "interval")
    values, scale = _values(stacked, score), _scale(score)
    table = by_input(_pseudo(stacked, values, score), inputs)
    found = _summary(float(values.mean()), table, level, scale, scatter(table).beside(pool))
    if not _is_bounded(score):
        return _moved(found, max(found.low, 0.0), found.high)
    if not 0 < found.value < scale or not found.error:
        top = max(scale, found.value)
        return _moved(found, max(found.low, 0.0), min(found.high, top) if scale > 0 else found.high)
    return _moved(found, *_wilson(found, scale))


def paired(
    a: Mapping[int, ArrayLike],
    b: Mapping[int, ArrayLike],
    score: Score = mean_score,
    *,
    level: float = LEVEL,
    pool: Pool | None = None,
    inputs: Sequence[int] | None = None,
) -> Interval:
    """Score of `a` minus score of `b` over the seeds that both have, with its interval.

    pool: how far the seeds of one trained arm scatter, which the difference of two does twice.
    inputs: as of `interval`.

    Raises:
        ValueError: no seed in common, or different numbers of test rows.
    """
    common = sorted(set(a) & set(b))
    if not common:
        raise ValueError(f"paired: the arms have no seed in common: {sorted(a)} and {sorted(b)}.")
    left, right = _stacked(a, common, "paired"), _stacked(b, common, "paired")
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"paired: the arms scored {left.shape[1]} and {right.shape[1]} rows; give the same rows.")
    ours, theirs, scale = _values(left, score), _values(right, score), _scale(score)
    table = by_input(_pseudo(left, ours, score) - _pseudo(right, theirs, score), inputs)
    if pool is not None:
        pool = Pool(pool.variance * sum(_differs(one) for one in (left, right)), pool.freedom)
    spread = scatter(table, padded=True).beside(pool)
    found = _summary(float((ours - theirs).mean()), table, level, scale, spread)
    if scale <= 0 or not _is_bounded(score):
        return found
    most = max(scale, abs(found.value))
    found = _beside_unseen(found, table, scale)
    return _moved(found, max(found.low, -most), min(found.high, most))


def by_input(table: Array, inputs: Sequence[int] | None) -> Array:
    """(seeds, inputs) of a (seeds, rows) table: rows with one input are one draw, however often they stand in the file.

    An input's value is the mean of all rows plus what its own rows are off it, times inputs / rows: the mean stays, and
    its variance is that of clusters (the ratio estimator's, linearised; Cochran 1977, section 6.3). None: every row is
    an input; so it is where the rows that were scored are not those that are numbered, for then equal ones are one.
    """
    if inputs is None or len(inputs) != table.shape[1]:
        return table
    names, places = np.unique(np.asarray(inputs), return_inverse=True)
    centre = table.mean(1, keepdims=True)
    sums = np.zeros((len(table), len(names)))
    np.add.at(sums.T, places, (table - centre).T)
    result: Array = centre + sums * (len(names) / table.shape[1])
    return result


def pool_of(arms: Iterable[Mapping[int, ArrayLike]], score: Score = mean_score) -> Pool | None:
    """How far the seeds of these trained arms scatter; None where fewer than two seeds of any are known."""
    stacked = [_stacked(runs, sorted(runs), "pool_of") for runs in arms if len(runs) > 1]
    return pooled(_values(one, score) for one in stacked)


def detectable(
    low: float, high: float, *, level: float = LEVEL, power: float = 0.8, freedom: float | None = None
) -> float:
    """The smallest true difference that a comparison with this interval would find with probability `power`.

    From the interval's half width, as if it were normal where `freedom` is not known: half * (t + z_power) / t.
    """
    normal = NormalDist()
    reach = quantile(level, freedom) if freedom else normal.inv_cdf(0.5 + level / 2)
    return (high - low) / 2 * (reach + normal.inv_cdf(power)) / reach


def _stacked(runs: Mapping[int, ArrayLike], seeds: Sequence[int], who: str) -> Array:
    """(seeds, rows, k)"""
    arrays = [np.asarray(runs[seed], dtype=np.float64) for seed in seeds]
    arrays = [x[:, None] if x.ndim == 1 else x for x in arrays]
    sizes = sorted({len(x) for x in arrays})
    if len(sizes) != 1 or not sizes[0]:
        raise ValueError(f"{who}: every seed must score the same rows, at least one; the seeds have {sizes} rows.")
    return np.stack(arrays)


def _differs(stacked: Array) -> bool:
    """Whether the seeds answer differently at all: what trains nothing does not."""
    return bool((stacked != stacked[0]).any())


def _values(stacked: Array, score: Score) -> Array:
    """(seeds,) scores of all rows."""
    rows = np.full(len(stacked), float(stacked.shape[1]))
    return score(stacked.sum(1), rows)


def _pseudo(stacked: Array, values: Array, score: Score) -> Array:
    """(seeds, rows) jackknife pseudo-values."""
    seeds, rows, _ = stacked.shape
    if rows == 1:
        return values[:, None]
    others = (stacked.sum(1, keepdims=True) - stacked).reshape(seeds * rows, -1)
    without = score(others, np.full(seeds * rows, rows - 1.0)).reshape(seeds, rows)
    result: Array = rows * values[:, None] - (rows - 1) * without
    return result


def _scale(score: Score) -> float:
    return float(getattr(score, "scale", 1.0))


def _is_bounded(score: Score) -> bool:
    return bool(getattr(score, "is_bounded", True))


def _summary(value: float, table: Array, level: float, scale: float, found: Scatter) -> Interval:
    seeds, rows = table.shape
    if scale > 0 and (rows == 1 or np.ptp(table) <= 1e-9 * scale):  # one row has no scatter that could be seen
        doubt = unseen(rows, level, scale)
        return Interval(value, value - doubt, value + doubt, level, seeds, rows, True)
    half = found.half(level)
    error = math.sqrt(found.variance)
    return Interval(value, value - half, value + half, level, seeds, rows, False, error, found.freedom, found.parts)


def unseen(rows: int, level: float, scale: float) -> float:
    """How far off a mean can be for exceptions, each by the whole scale, of which so many rows showed none."""
    return scale * (1 - math.pow(1 - level, 1 / rows))


def _beside_unseen(found: Interval, table: Array, scale: float) -> Interval:
    """Of answers that are right or wrong: where none differs at half of the seeds or more, no exception was seen."""
    whole = np.abs(table) / scale
    if (np.minimum(whole, np.abs(whole - 1)) > 1e-9).any() or (np.abs(table.mean(0)) >= scale / 2).any():
        return found
    doubt = unseen(found.rows, found.level, scale)
    low, high = min(found.low, found.value - doubt), max(found.high, found.value + doubt)
    is_wider = (low, high) != (found.low, found.high)
    return Interval(**{**vars(found), "low": low, "high": high, "widened": found.widened or is_wider})


def _wilson(found: Interval, scale: float) -> tuple[float, float]:
    share, reach = found.value / scale, quantile(found.level, found.freedom)
    size = share * (1 - share) * (scale / found.error) ** 2  # rows that would leave this error
    centre = (share + reach**2 / (2 * size)) / (1 + reach**2 / size)
    half = reach / (1 + reach**2 / size) * math.sqrt(share * (1 - share) / size + reach**2 / (4 * size**2))
    return scale * (centre - half), scale * (centre + half)


def _moved(found: Interval, low: float, high: float) -> Interval:
    return Interval(**{**vars(found), "low": low, "high": high})
