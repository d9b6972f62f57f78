"""Predictions of the cost model against measurements, on a machine that is calibrated beside them in every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from benchmarks.tools.measuring import Ratio, alternating, compared
from tunescope.theory.costs.machine import Machine

STEP, DECODING = "calibrated: a training step", "calibrated: decoding"


@dataclass(frozen=True)
class Case:
    """Something to time, and its seconds on a machine by the model."""

    run: Callable[[], object]
    predicted: Callable[[Machine], float]


def predictions(family: str, cases: Mapping[str, Case], step: Case, decoding: Case, rounds: int) -> list[Ratio]:
    """Predicted against measured milliseconds of each case; the two calibrations are measured in every round too."""
    runs = {name: case.run for name, case in cases.items()} | {STEP: step.run, DECODING: decoding.run}
    times = alternating(runs, rounds)
    here = [machine(step, decoding, *pair) for pair in zip(times[STEP], times[DECODING], strict=True)]
    return [
        compared(
            f"{family}, {name}",
            "predicted",
            "measured",
            {"predicted": [1000 * case.predicted(one) for one in here], "measured": times[name]},
        )
        for name, case in cases.items()
    ]


def machine(step: Case, decoding: Case, step_ms: float, decoding_ms: float) -> Machine:
    """What would take exactly these times, where a step is products alone, and decoding products and reading."""
    flops = 1000 * step.predicted(_machine(1, inf)) / step_ms
    reading = max(decoding_ms / 1000 - decoding.predicted(_machine(flops, inf)), decoding_ms / 1e6)
    return _machine(flops, decoding.predicted(_machine(inf, 1)) / reading)


def _machine(flops: float, bandwidth: float) -> Machine:
    return Machine("here", flops, 1.0, bandwidth, 1.0, memory=1, host_memory=1)
