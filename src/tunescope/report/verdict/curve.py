"""Whether an arm was still learning when it stopped, beyond its curve's own noise, and how far it would come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tunescope.report.verdict.variance import quantile

ONE_SIDED = 0.90  # of a two-sided interval: 5 % lie beyond its upper end
LEAST = 1e-6  # nats: a loss below it is as good as none
NEAR = 0.1  # of the way to the other arm's loss: what stops short of it by less has come there

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Trend:
    """A curve's change over the last half of its steps, carried on for as many steps as the run had.

    gain: the change that this comes to, up for scores and down for losses.
    certain: it is beyond the curve's noise, one-sided at 5 %.
    """

    gain: float
    certain: bool


def rise(runs: Sequence[Run], noise: float) -> Trend | None:
    """Of the development score; None where it has no two points in the last half of any run.

    noise: the standard error of one development score. Scores on the same rows go together, so this is the most.
    """
    return _trend(runs, "dev", 1.0, noise)


def fall(runs: Sequence[Run]) -> Trend | None:
    """Of the training loss, by shares: in as many steps again it falls to the same share of itself, never below zero.

    Its noise only seeds tell: one seed is never certain.
    """
    logs = [{"curve": [point | {"log": _log(point.get("loss"))} for point in run.get("curve") or ()]} for run in runs]
    found = _trend(logs, "log", -1.0, None)
    last = [
        float(run["curve"][-1]["loss"]) for run in runs if run.get("curve") and _is_number(run["curve"][-1]["loss"])
    ]
    return None if found is None or not last else Trend(fmean(last) * -math.expm1(-found.gain), found.certain)


def _log(loss: Any) -> float | None:
    return math.log(max(float(loss), LEAST)) if _is_number(loss) else None


def reaches(loss: float | None, trend: Trend | None, other: float | None) -> bool:
    """Whether a training loss, going on to fall, comes near the other arm's last."""
    if loss is None or other is None or trend is None or not trend.certain:
        return False
    return loss - trend.gain <= other + NEAR * max(loss - other, 0.0)


def _trend(runs: Sequence[Run], key: str, sign: float, noise: float | None) -> Trend | None:
    lines = [line for line in (_line(run, key) for run in runs) if line]
    if not lines:
        return None
    slopes = [sign * slope for slope, _, _ in lines]
    slope, steps = fmean(slopes), fmean([steps for _, _, steps in lines])
    by_seeds = math.inf
    if len(slopes) > 1:
        by_seeds = quantile(ONE_SIDED, len(slopes) - 1) * stdev(slopes) / math.sqrt(len(slopes))
    by_rows = 0.0
    if noise is not None:
        errors = sum((noise / spread) ** 2 for _, spread, _ in lines)
        by_rows = quantile(ONE_SIDED, math.inf) * math.sqrt(errors) / len(lines)
        by_seeds = by_seeds if len(slopes) > 1 else 0.0
    return Trend(slope * steps, slope > max(by_seeds, by_rows))


def _line(run: Run, key: str) -> tuple[float, float, float] | None:
    """The least-squares slope a step over the last half, the root of the steps' sum of squares, and all steps."""
    points = [(float(point["step"]), point.get(key)) for point in run.get("curve") or ()]
    last = max((step for step, _ in points), default=0.0)
    known = [(step, float(value)) for step, value in points if step >= last / 2 and _is_number(value)]
    if len(known) < 2:
        return None
    middle, mean = fmean([step for step, _ in known]), fmean([value for _, value in known])
    squares = sum((step - middle) ** 2 for step, _ in known)
    if not squares:
        return None
    slope = sum((step - middle) * (value - mean) for step, value in known) / squares
    return slope, math.sqrt(squares), last


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
