"""Looks: while there is no verdict, and seeds may bring one, the two arms that decide are run at more of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tunescope.attachment.share import as_first
from tunescope.comparison.entry import Entry
from tunescope.comparison.results import assemble
from tunescope.comparison.standing import Standing
from tunescope.report.verdict.interim_looks import planned
from tunescope.report.verdict.reader import gather
from tunescope.report.verdict.verdict import decide
from tunescope.trial.bench import Bench

Run = Callable[[Bench, list[Entry], tuple[int, ...]], None]  # arms, at these seeds


@dataclass(frozen=True)
class Clock:
    """When the comparison was begun, as `time.monotonic` has it, how many runs go on side by side, and the seconds that
    are kept for what comes behind them."""

    start: float
    workers: int
    kept: float = 0.0

    def allows(self, minutes: float | None, arms: Sequence[Standing], count: int) -> bool:
        """Whether these arms would have so many seeds within the minutes, each at the pace of those that it had; an arm
        that no seed changes has them."""
        if minutes is None:
            return True
        left = (arm for arm in arms if arm.runs and arm.varies)
        needed: float = sum((count - len(arm.runs)) * fmean(run["seconds"] for run in arm.runs) for arm in left)
        return time.monotonic() + needed / self.workers + self.kept <= self.start + 60 * minutes


def looked(bench: Bench, entries: list[Entry], run: Run, clock: Clock) -> dict[str, Any]:
    """results.json after the last look that was needed.

    At each look the deciding arms are the best context and the best delta on dev, over all seeds that they have: one
    that was best at three seeds and fails at others gives way to one that does not. So does the arm that is best of
    all, which the others are told against and which is kept. The test rows have no part in it.
    """
    plan, standings = bench.plan, [entry.standing for entry in entries]
    if plan.max_seeds is None:
        return assemble(bench, standings)
    counts = planned(len(plan.seeds), plan.max_seeds)
    looks: dict[str, Any] = {"planned": list(counts), "at": len(plan.seeds), "deciding": []}
    results = assemble(bench, standings, looks)
    for count in [count for count in counts if count > len(plan.seeds)]:
        if not decide(results)["more_seeds"]:
            break
        names = best_of_each(results)
        arms = [one for one in standings if one.name in names]
        if not as_first(bench.model, clock.allows(plan.minutes, arms, count)):
            return assemble(bench, standings, looks | {"out_of_time": plan.minutes})
        done = set[str]()
        while left := [entry for entry in entries if entry.standing.name in set(names) - done]:
            run(bench, left, plan.every_seed[:count])
            done |= set(names)
            names = best_of_each(assemble(bench, standings, looks | {"deciding": []}))
        looks = looks | {"at": count, "deciding": names}
        results = assemble(bench, standings, looks)
    return results


def best_of_each(results: dict[str, Any]) -> list[str]:
    """The names of the best context and the best delta on dev, of those that finished."""
    found = gather(results, margin=0.0)
    return [one.name for one in (found.context, found.delta) if one is not None]
