"""What is known of one arm so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any


@dataclass
class Standing:
    """What is known of one arm so far."""

    name: str
    spec: str = ""
    group: str = "none"
    note: str = ""
    parameters: Mapping[str, int] = field(default_factory=lambda: {"trained": 0, "stored": 0, "live": 0})
    status: str = "done"
    reason: str = ""
    learning_rate: float | None = None  # of the first method
    learning_rates: list[float] = field(default_factory=list)
    head_learning_rate: float | None = None  # of a head beside these
    trials: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    methods: tuple[str, ...] = ()  # what it is made of, by name
    varies: bool = True  # whether another seed gives another result
    served_as: str = ""  # the format that servers of others take it in

    @property
    def dev(self) -> float | None:
        """The mean development score over seeds, if every run is done."""
        return fmean(run["dev"] for run in self.runs) if self.runs and self.status == "done" else None

    @property
    def last_loss(self) -> float:
        """The mean training loss before the last evaluation, 0 for what trains nothing."""
        return fmean(run["curve"][-1]["loss"] if run.get("curve") else 0.0 for run in self.runs) if self.runs else 0.0


def every_seed(one: Standing, runs: dict[int, Any], seeds: Iterable[int]) -> dict[int, Any]:
    """What an arm has of each seed; what trains nothing and draws nothing ran once, and stands for all of these."""
    return runs if one.varies or len(runs) != 1 else dict.fromkeys(seeds, next(iter(runs.values())))


def best_on_dev(standings: Sequence[Standing]) -> Standing | None:
    """The arm with the highest development score; ties to fewer stored parameters, then to the lower training loss."""
    done = [standing for standing in standings if standing.dev is not None]
    return max(done, key=lambda one: (one.dev, -one.parameters["stored"], -one.last_loss), default=None)
