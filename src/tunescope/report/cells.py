"""A table of a paper: our values, one a seed, beside the published words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup


@dataclass(frozen=True)
class Cell:
    """Our values, one a seed (or one in all), beside the paper's words for the same cell."""

    values: tuple[float, ...] = ()
    paper: str = ""
    text: str = ""  # shown instead of values, where there is a text and no number
    digits: int = 3
    bounds: tuple[float, float] = (-math.inf, math.inf)  # what a value can be

    @classmethod
    def of(cls, outcomes: Iterable[Mapping[str, Any]], *path: str, paper: str = "") -> Cell:
        """A share from every outcome, at `path` in it."""
        return cls(tuple(float(at(outcome, path)) for outcome in outcomes), paper, bounds=(0.0, 1.0))

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean over seeds, within `bounds`; None for fewer than two."""
        if len(self.values) < 2:
            return None
        from scipy.stats import t

        half = float(t.ppf(0.975, len(self.values) - 1)) * stdev(self.values) / math.sqrt(len(self.values))
        low, high = self.bounds
        return max(low, fmean(self.values) - half), min(high, fmean(self.values) + half)


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns, what is to be said under them, and what only the result file holds.

    pictures: file name -> <svg>, written beside the result and drawn on its page.
    """

    columns: tuple[str, ...]
    rows: list[tuple[str, list[Cell]]]
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, Markup] = field(default_factory=dict)


def at(outcome: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys."""
    return reduce(getitem, path, outcome)


def intervals_over(count: int, one: str, several: str) -> str:
    """What the intervals of a table are over, a sentence; of one there are none."""
    return f"Intervals are over {count} {several}." if count > 1 else f"It is one {one}: there are no intervals."
