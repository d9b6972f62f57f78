"""F1 of the words of short answers, as question answering reports it."""

from __future__ import annotations

from collections.abc import Sequence

from tunescope.data.metric import Metric, mean, per_row
from tunescope.data.metrics import _squad


def best(output: str, references: Sequence[str], lowercase: bool) -> tuple[float]:
    return (max(_squad.f1(output, one) for one in references),)


METRIC = Metric(compared=f"mean F1 of words, {_squad.COMPARED}", best=1.0, width=1, stats=per_row(best), score=mean)
