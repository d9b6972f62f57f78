"""F1 of the answer True, as MultiRC counts it over all answers (Khashabi et al. 2018, section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunescope.data.metric import CASE, Metric, per_row

TRUE = "True"


def counts(output: str, references: Sequence[str], lowercase: bool) -> tuple[float, float, float]:
    """(said and meant, said, meant): whether the output, and whether a reference, is True."""
    true = TRUE.lower() if lowercase else TRUE
    said, *known = (one.strip().lower() if lowercase else one.strip() for one in (output, *references))
    return float(said == true and true in known), float(said == true), float(true in known)


def score(sums: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where True is neither said nor meant it is 0."""
    both, said, meant = sums.T
    return np.asarray(2 * both / np.maximum(said + meant, 1))


METRIC = Metric(
    compared=f'F1 of "True" over all rows, from 0 to 1, {CASE}, as in MultiRC; any other output counts as False',
    best=1.0,
    width=3,
    stats=per_row(counts),
    score=score,
)
