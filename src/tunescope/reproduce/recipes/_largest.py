"""The largest of some numbers, which is no number where one of them is none: Python's max goes past it."""

import math
from collections.abc import Iterable


def largest(values: Iterable[float]) -> float:
    """NaN where one is; else the largest of one or more."""
    found = list(values)
    return math.nan if any(map(math.isnan, found)) else max(found)
