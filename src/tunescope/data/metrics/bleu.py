"""Corpus BLEU-4 (Papineni et al. 2002), as sacrebleu counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import Metric
from tunescope.data.metrics._sacre import counted

if TYPE_CHECKING:
    from tunescope.data.metric import Floats


def score(sums: Floats, rows: Floats) -> Floats:
    """(n, 10) -> (n,) corpus BLEU-4 in percent, with sacrebleu's default "exp" smoothing.

    The statistics: lengths of output and reference, 4 n-gram matches, 4 n-gram totals. Smoothing: the k-th order
    without a match counts as 1 / 2^k of a match. An order without any n-gram ends the sum at 0, and so does a corpus
    without any match.
    """
    lengths, matches, totals = sums[:, :2], sums[:, 2:6], sums[:, 6:]
    missing = matches == 0
    precision = np.where(missing, 0.5 ** missing.cumsum(-1), matches) / np.where(totals > 0, totals, 1)
    scored = (totals > 0).all(-1) & (matches > 0).any(-1)
    output, reference = lengths.T
    penalty = np.exp(np.minimum(0, 1 - reference / np.where(output > 0, output, 1)))
    return np.where(scored, 100 * penalty * np.exp(np.log(precision).mean(-1)), 0.0)


METRIC = Metric(
    compared="corpus BLEU-4 as in sacrebleu: 13a tokenisation, {case}, exp smoothing, 0 to 100",
    best=100.0,
    width=10,
    stats=counted("BLEU", lambda lowercase: {"tokenize": "13a", "force": True, "lowercase": lowercase}),
    score=score,
)
