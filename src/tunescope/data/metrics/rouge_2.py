"""ROUGE-2 (Lin 2004): F1 of the pairs of words, as the XSum tables of prefix-tuning report it (rouge_score)."""

from __future__ import annotations

from collections.abc import Sequence

from tunescope.data.metric import Metric, mean, per_row
from tunescope.data.metrics._rouge import best, n_grams


def f1(output: str, references: Sequence[str], lowercase: bool) -> tuple[float]:
    return (best(output, references, n_grams(2)),)


METRIC = Metric(
    compared="mean ROUGE-2 F1 as in rouge_score (XSum): runs of a to z and digits, stemmed, case ignored, of several "
    "references the one that fits best, 0 to 100",
    best=100.0,
    width=1,
    stats=per_row(f1),
    score=mean,
)
