"""How probable the labels of an answer were, as a result keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping

KEPT = 3  # labels, of each answer


def highest(shares: Mapping[str, float], first: str) -> dict[str, float]:
    """Of the most probable labels, to three digits; `first` is the answer, which equals do not come before."""
    order = sorted(shares, key=lambda label: (label != first, -shares[label]))
    return {label: round(shares[label], 3) for label in order[:KEPT] if math.isfinite(shares[label])}
