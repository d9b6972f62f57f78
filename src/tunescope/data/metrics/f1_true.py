"""F1 of the answer True, as MultiRC counts it over all answers (Khashabi et al. 2018, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunescope.data.metric import Metric, per_row

TRUE = "True"


def counts(output: str, references: Sequence[str], lowercase: bool) -> tuple[float, float, float]:
    """(said and meant, said, meant): whether the output, and whether a reference, is True."""
    said, meant = output.strip() == TRUE, TRUE in references
    return float(said and meant), float(said), float(meant)


def score(sums: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where True is neither said nor meant it is 0."""
    both, said, meant = sums.T
    return np.asarray(2 * both / np.maximum(said + meant, 1))


METRIC = Metric(
    compared='F1 of "True" over all rows; what is neither True nor False counts as False',
    best=1.0,
    width=3,
    stats=per_row(counts),
    score=score,
)
