"""The mean F1 of CB's three labels, as SuperGLUE counts it beside accuracy (Wang et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunescope.data.metric import CASE, Metric, per_row

LABELS = ("entailment", "contradiction", "neutral")


def counts(output: str, references: Sequence[str], lowercase: bool) -> tuple[float, ...]:
    """(said and meant, said, meant) of each label."""
    said, *known = (one.strip().lower() if lowercase else one.strip() for one in (output, *references))
    return tuple(
        float(value) for label in LABELS for value in (said == label and label in known, said == label, label in known)
    )


def score(sums: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """A label that is neither said nor meant has 0."""
    both, said, meant = sums.reshape(-1, len(LABELS), 3).transpose(2, 0, 1)
    return np.asarray((2 * both / np.maximum(said + meant, 1)).mean(1))


METRIC = Metric(
    compared=f"mean F1 of CB's three labels, from 0 to 1, {CASE}, as in SuperGLUE; any other output is none of them",
    best=1.0,
    width=3 * len(LABELS),
    stats=per_row(counts),
    score=score,
)
