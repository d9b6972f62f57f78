"""BLEU-4 of Romanian as published for WMT16: of Moses' tokens without diacritics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunescope.measuring import romanian
from tunescope.measuring.sacre import counted
from tunescope.metrics import Metric, bleu

if TYPE_CHECKING:
    from tunescope.metrics import Floats

COUNT = counted("BLEU", lambda lowercase: {"tokenize": "none", "force": True, "lowercase": lowercase})


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 10), as of `bleu`."""
    return COUNT(romanian.tokens(outputs), [romanian.tokens(own) for own in references], lowercase)


def score(sums: Floats, rows: Floats) -> Floats:
    """(n, 10) -> (n,) as `bleu`, but 0 where an order has no match, which `bleu` smooths."""
    return np.where(sums[:, 2:6].min(-1) > 0, bleu.score(sums, rows), 0.0)


METRIC = Metric(
    compared="corpus BLEU-4 as in WMT16 into Romanian: no diacritics, Moses' tokens, {case}, no smoothing, 0 to 100",
    best=100.0,
    width=10,
    stats=stats,
    score=score,
    needs=romanian.check,
)
