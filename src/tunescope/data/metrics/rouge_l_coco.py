"""ROUGE-L as in COCO's caption metrics, which E2E, WebNLG and DART tables report: F with beta 1.2, not F1.

Precision and recall may come from different references, each the highest. Summarisation's ROUGE-L is `rouge_l`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import Metric, mean
from tunescope.data.metrics import _coco
from tunescope.data.metrics._rouge import longest_common

if TYPE_CHECKING:
    from tunescope.data.metric import Floats

BETA = 1.2


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    rows = [[100 * f(output, own)] for output, own in zip(*_coco.prepared(outputs, references), strict=True)]
    return np.asarray(rows, dtype=np.float64)


def f(output: str, references: Sequence[str]) -> float:
    """Of tokenised texts; an empty one has, as there, one empty token."""
    words = tuple(output.split(" "))
    others = [tuple(one.split(" ")) for one in references]
    common = [longest_common(words, other) for other in others]
    precision = max(common) / len(words)
    recall = max(both / len(other) for both, other in zip(common, others, strict=True))
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision) if max(common) else 0.0


METRIC = Metric(
    compared="mean ROUGE-L as in COCO's caption metrics (E2E, WebNLG, DART): PTB tokens without punctuation, case "
    "ignored, F with beta 1.2 of the highest precision and the highest recall, 0 to 100",
    best=100.0,
    width=1,
    stats=stats,
    score=mean,
    needs=_coco.check,
)
