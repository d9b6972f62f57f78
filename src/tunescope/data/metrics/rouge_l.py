"""ROUGE-L (Lin 2004) as summarisation reports it: F1 by rouge_score (XSum in prefix-tuning and in the unified view).

The E2E challenge's ROUGE-L is another number: `rouge_l_coco`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tunescope.data.metric import Metric, mean, per_row
from tunescope.data.metrics._rouge import best, subsequence


def f1(output: str, references: Sequence[str], lowercase: bool) -> tuple[float]:
    return (best(output, references, subsequence),)


METRIC = Metric(
    compared="mean ROUGE-L F1 as in rouge_score (XSum): runs of a to z and digits, stemmed, case ignored, the longest "
    "common subsequence of the whole texts, of several references the one that fits best, 0 to 100",
    best=100.0,
    width=1,
    stats=per_row(f1),
    score=mean,
)
