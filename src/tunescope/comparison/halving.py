"""Learning rates raced at successive halving: those that have clearly lost stop early."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.system import run_folder
from tunescope.trial.plan import Plan
from tunescope.trial.rates import rungs

if TYPE_CHECKING:
    from tunescope.comparison.job import Job


def race(
    plan: Plan,
    trials: Sequence[Sequence[Job]],
    run: Callable[[Sequence[Job], int], dict[str, Any]],
    folder: Path,
    together: int,
) -> None:
    """Run every arm's trials as far as they go on, and leave a result of those that do not."""
    running = [list(some) for some in trials if len(some) > 1]
    for step, most in rungs(plan.race):
        distinct = {todo.id: replace(todo, until=step) for some in running for todo in some}
        outcomes = run(list(distinct.values()), together)
        for some in running:
            some.sort(key=lambda todo: _merit(outcomes[todo.id], step), reverse=True)
            for todo in some[most:]:
                _stop(folder, todo, outcomes[todo.id], step)
            del some[most:]


def _merit(outcome: Mapping[str, Any], step: int) -> tuple[float, float]:
    points = [point for point in outcome.get("curve") or () if point["step"] <= step]
    if not points:
        return -float("inf"), -float("inf")
    return max(point["dev"] for point in points), -points[-1]["loss"]


def _stop(folder: Path, todo: Job, outcome: Mapping[str, Any], step: int) -> None:
    if (
        outcome["status"] == "paused" and run_folder.finished(folder, todo.id) is None
    ):  # of two arms alike it is one run
        lost = {"status": "lost", "reason": f"stopped at step {step} of {todo.steps}: other learning rates were better"}
        run_folder.finish(run_folder.working(folder, todo.id), folder, todo.id, {**outcome, **lost})
