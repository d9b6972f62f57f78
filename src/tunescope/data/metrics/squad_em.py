"""The share of short answers with the words of a reference, as question answering reports it."""

from __future__ import annotations

from collections.abc import Sequence

from tunescope.data.metric import Metric, mean, per_row
from tunescope.data.metrics import _squad


def is_answer(output: str, references: Sequence[str], lowercase: bool) -> tuple[float]:
    return (float(_squad.words(output) in [_squad.words(one) for one in references]),)


METRIC = Metric(
    compared=f"the same words in the same order, {_squad.COMPARED}",
    best=1.0,
    width=1,
    stats=per_row(is_answer),
    score=mean,
)
