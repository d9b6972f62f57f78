"""Numbers over several draws of demonstrations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tunescope.report.cells import Cell
from tunescope.report.finding import Line


def shown(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> str:
    """0.431 [0.402, 0.460]: the mean, and Student's 95 % interval where there are several known values."""
    known = tuple(value for value in values if math.isfinite(value))
    cell = Cell(known, bounds=(low, high))
    if cell.mean is None:
        return "–"
    interval = f" [{cell.interval[0]:.3f}, {cell.interval[1]:.3f}]" if cell.interval else ""
    return f"{cell.mean:.3f}{interval}"


def line(name: str, values: Sequence[Sequence[float]], style: str = "text") -> Line:
    """A curve over layers from the draws' curves: their means, and the least and most, of the draws that have one."""
    grid = np.array(values, dtype=float)
    known = np.isfinite(grid)
    totals, counts = np.where(known, grid, 0.0).sum(0), known.sum(0)
    means = np.divide(totals, counts, out=np.full(len(totals), np.nan), where=counts > 0)
    least, most = (
        np.where(counts > 0, edge(np.where(known, grid, fill), 0), np.nan)
        for edge, fill in ((np.min, np.inf), (np.max, -np.inf))
    )
    return Line(name, means.tolist(), least.tolist(), most.tolist(), style)


def mean(values: Sequence[Sequence[float]]) -> list[float]:
    """Element by element over the draws."""
    means: list[float] = np.array(values, dtype=float).mean(0).tolist()
    return means
