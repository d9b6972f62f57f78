"""Looks: while there is no verdict, and seeds may bring one, the two arms that decide are run at more of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunescope.comparison.protocol import Entry
from tunescope.comparison.results import assemble
from tunescope.comparison.standing import Standing
from tunescope.report.verdict.looks import planned
from tunescope.report.verdict.verdict import decide
from tunescope.trial.bench import Bench

Run = Callable[[Bench, list[Entry], tuple[int, ...]], None]  # arms, at these seeds


def looked(bench: Bench, entries: list[Entry], best: Standing | None, run: Run) -> dict[str, Any]:
    """results.json after the last look that was needed.

    The deciding arms are the best context and the best delta on dev at the first look, whatever comes later.
    """
    plan, standings = bench.plan, [entry.standing for entry in entries]
    if plan.max_seeds is None:
        return assemble(bench, standings, best)
    counts = planned(len(plan.seeds), plan.max_seeds)
    looks: dict[str, Any] = {"planned": list(counts), "at": len(plan.seeds), "deciding": []}
    results = assemble(bench, standings, best, looks)
    for count in [count for count in counts if count > len(plan.seeds)]:
        found = decide(results)
        if not found["more_seeds"]:
            break
        names = looks["deciding"] or [one["name"] for kind in ("context", "delta") if (one := found["evidence"][kind])]
        run(bench, [entry for entry in entries if entry.standing.name in names], plan.every_seed[:count])
        looks = looks | {"at": count, "deciding": names}
        results = assemble(bench, standings, best, looks)
    return results
