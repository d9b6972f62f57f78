"""The share of outputs that are one of their references."""

from __future__ import annotations

from collections.abc import Sequence

from tunescope.data.metric import Metric, mean, per_row


def is_match(output: str, references: Sequence[str], lowercase: bool) -> tuple[float]:
    """(1,) if the output is one of the references, runs of white space counted as one space."""
    return (float(normal(output, lowercase) in {normal(reference, lowercase) for reference in references}),)


def normal(text: str, lowercase: bool) -> str:
    """What is compared: two texts match where these are equal."""
    return " ".join((text.lower() if lowercase else text).split())


METRIC = Metric(
    compared="equal to one of the references, {case}, white space runs taken as one space",
    best=1.0,
    width=1,
    stats=per_row(is_match),
    score=mean,
)
