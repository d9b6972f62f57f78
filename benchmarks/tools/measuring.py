"""Alternating runs, timed by the CPU time of the process, and what is reported of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Times = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Ratio:
    """One variant against its baseline: the median over rounds of the ratio within a round, with min and max."""

    case: str
    variant: str
    baseline: str
    quantity: str  # "time" (milliseconds of CPU), "wall" (milliseconds by the clock) or "memory" (megabytes)
    rounds: int
    value: float  # the variant's own median, in the quantity's unit
    ratio: float
    low: float
    high: float
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, as for a peer."""
        return None if self.at_most is None else self.ratio <= self.at_most


@dataclass(frozen=True)
class Check:
    """Something that must hold for the comparison to be one of like with like, or a bound on an absolute number."""

    name: str
    value: float
    at_most: float

    @property
    def met(self) -> bool:
        return self.value <= self.at_most


@dataclass(frozen=True)
class Result:
    """All that one benchmark found. skipped: the reason why it could not run."""

    ratios: Sequence[Ratio] = ()
    checks: Sequence[Check] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    skipped: str | None = None


def alternating(variants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of process CPU time of every variant in every round, after one round that is not counted.

    The variant that goes first changes from round to round.
    """
    times: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        run()
    order = list(variants)
    for _ in range(rounds):
        for name in order:
            gc.collect()
            start = time.process_time()
            variants[name]()
            times[name].append(1000 * (time.process_time() - start))
        order = order[1:] + order[:1]
    return times


def compared(
    case: str,
    variant: str,
    baseline: str,
    measured: Times,
    at_most: float | None = None,
    quantity: str = "time",
) -> Ratio:
    """The ratio of two of the variants that were measured round by round."""
    own = measured[variant]
    ratios = [mine / theirs for mine, theirs in zip(own, measured[baseline], strict=True)]
    return Ratio(
        case=case,
        variant=variant,
        baseline=baseline,
        quantity=quantity,
        rounds=len(ratios),
        value=statistics.median(own),
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        at_most=at_most,
    )
