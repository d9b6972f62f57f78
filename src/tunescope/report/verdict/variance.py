"""How far a mean over seeds and rows can be off: mean squares of both and of their interaction, and Student's t.

A table (seeds, rows) of differences, every seed on the same rows, is m + a_seed + b_row + e_both. The variance of its
mean is estimated by (MS_seed + MS_row - MS_both) / (seeds * rows), never by less than its largest term, with the
degrees of freedom of Satterthwaite (1946). One seed leaves the rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, stdtrit

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pool:
    """How far the seeds of other trained arms scatter: the variance of a score, and its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True)
class Scatter:
    """The mean squares of a table, a `freedom` each, and what they leave open.

    seeds, rows: the size of the table.
    of_seeds, of_rows, of_both: mean squares; those of one seed are 0.
    """

    seeds: int
    rows: int
    of_seeds: float
    of_rows: float
    of_both: float
    seed_freedom: float

    @property
    def variance(self) -> float:
        """Of the mean of the whole table."""
        whole = max(self.of_seeds + self.of_rows - self.of_both, self.of_seeds, self.of_rows)
        return whole / (self.seeds * self.rows)

    @property
    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom of `variance`; 1 where nothing scatters."""
        row_freedom = max(self.rows - 1, 1)
        terms = [(self.of_rows, float(row_freedom))]
        if self.seeds > 1:
            terms += [(self.of_seeds, self.seed_freedom), (self.of_both, row_freedom * (self.seeds - 1))]
        spread = sum(square**2 / freedom for square, freedom in terms)
        return max(1.0, (self.variance * self.seeds * self.rows) ** 2 / spread) if spread else 1.0

    @property
    def parts(self) -> dict[str, float]:
        """Of `variance`: what more seeds lower, what more rows lower, and what either does. Shares of their own sum."""
        cells = self.seeds * self.rows
        own = {
            "seeds": max(self.of_seeds - self.of_both, 0.0) / cells,
            "rows": max(self.of_rows - self.of_both, 0.0) / cells,
            "both": self.of_both / cells,
        }
        total = sum(own.values())
        return {name: part * self.variance / total if total else 0.0 for name, part in own.items()}

    def half(self, level: float) -> float:
        """Half the width of the interval at this level."""
        return quantile(level, self.freedom) * math.sqrt(self.variance)

    def beside(self, pool: Pool | None) -> Scatter:
        """With the seeds' scatter shrunk towards the pool's, where that is no less.

        A pair that scatters more than the pool keeps its own scatter with its own few degrees of freedom: a pool of
        steady arms must not hide one that is not.
        """
        if pool is None or self.seeds < 2 or self.rows * pool.variance < self.of_seeds:
            return self
        own, weight = self.seeds - 1, pool.freedom / 2
        square = (weight * self.rows * pool.variance + own * self.of_seeds) / (weight + own)
        return replace(self, of_seeds=square, seed_freedom=weight + own)


def quantile(level: float, freedom: float) -> float:
    """How many standard errors a two-sided interval reaches to each side."""
    return float(stdtrit(freedom, 0.5 + level / 2))


def scatter(table: Array, *, padded: bool = False) -> Scatter:
    """The mean squares of a (seeds, rows) table of scores or, `padded`, of differences.

    Padded means: one row more lies as far off the mean as the farthest, half of it to each side. Where few rows differ
    they scatter too little as they are (after the "Wald + 2" of Agresti and Min 2005, for pairs of right and wrong).
    """
    seeds, rows = table.shape
    by_row, by_seed = table.mean(0), table.mean(1)
    mean = float(by_row.mean())
    squares = (by_row - mean) ** 2
    of_rows = seeds * float(squares.sum() + padded * squares.max()) / max(rows - 1, 1)
    if seeds == 1:
        return Scatter(1, rows, 0.0, of_rows, 0.0, 1)
    of_seeds = rows * float(by_seed.var(ddof=1))
    rest = table - by_row - by_seed[:, None] + mean
    of_both = float((rest**2).sum()) / max((rows - 1) * (seeds - 1), 1)
    return Scatter(seeds, rows, of_seeds, of_rows, of_both, seeds - 1)


def pooled(scores: Iterable[Array]) -> Pool | None:
    """The median variance of arms whose scores at each seed these are; None where no arm has two seeds.

    The median, so that one arm far off the others counts for no more than one; it is divided by the median of
    chi-squared over its freedom, as few seeds more often show too little scatter than too much. The degrees of freedom
    are those of as many arms as scatter alike, less one: a pool of one arm says nothing of another.
    """
    known = [(float(one.var(ddof=1)), len(one) - 1) for one in scores if len(one) > 1]
    total = sum(variance for variance, _ in known)
    if not total:
        return None
    alike = total**2 / sum(variance**2 for variance, _ in known)
    usual = [variance * freedom / (2 * float(gammaincinv(freedom / 2, 0.5))) for variance, freedom in known]
    return Pool(float(np.median(usual)), (alike - 1) * sum(freedom for _, freedom in known) / len(known))
