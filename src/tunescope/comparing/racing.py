"""Successive halving of learning rates: those that have clearly lost stop early.

(Jamieson and Talwalkar 2016, arXiv:1502.07943, with thirds for halves.) At a third of the steps the best third of an
arm's rates goes on, by the best development score until then, ties to the lower loss; of more than three, a ninth goes
on at a third of the steps and a third at a ninth; and so on. What goes on is a run like any other, to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tunescope import store
from tunescope.comparing.plan import Plan
from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.comparing.job import Job
    from tunescope.comparing.pool import Runner

PART = 3


class Race(NamedTuple):
    """How many learning rates are tried, in how many steps, and how many lie between their scores."""

    rates: int
    steps: int
    eval_every: int


def rungs(race: Race) -> list[tuple[int, int]]:
    """The steps at which rates are held against one another, each with how many go on; the last leaves one."""
    count, found = 0, dict[int, int]()
    while PART**count < race.rates:
        count += 1
    for at in range(count):
        between = PART ** (count - at) * race.eval_every
        found[-(-race.steps // between) * race.eval_every] = -(-race.rates // PART ** (at + 1))
    return [(step, most) for step, most in found.items() if step < race.steps]


def check_halving(race: Race) -> None:
    """Raises UserError where no run would stop early."""
    if race.rates < 2:
        raise UserError("--halving has no effect on one learning rate; give more with --trials or --lr.")
    if not rungs(race):
        raise UserError(
            f"--halving has no effect with --eval-every {race.eval_every}: a third of {race.steps} "
            f"steps has no score. Type: --eval-every {max(1, race.steps // PART)}"
        )


def halving_rule(race: Race) -> str:
    """The rule as it works out here, for the record."""
    return "; ".join(
        f"at step {step} the best {most} of {race.rates} learning rates go on" for step, most in rungs(race)
    )


def trial_steps(race: Race) -> list[int]:
    """Of every learning rate's trial, the longest last."""
    left, found = race.rates, list[int]()
    for step, most in rungs(race):
        found += [step] * (left - most)
        left = most
    return found + [race.steps] * left


def race(plan: Plan, trials: Sequence[Sequence[Job]], at_work: Runner, folder: Path, together: int) -> None:
    """Run every arm's trials as far as they go on, and leave a result of those that do not."""
    running = [list(some) for some in trials if len(some) > 1]
    for step, most in rungs(plan.race):
        distinct = {todo.id: replace(todo, until=step) for some in running for todo in some}
        outcomes = at_work.run(list(distinct.values()), together)
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
    if outcome["status"] == "paused" and store.finished(folder, todo.id) is None:  # of two arms alike it is one run
        lost = {"status": "lost", "reason": f"stopped at step {step} of {todo.steps}: other learning rates were better"}
        store.finish(store.working(folder, todo.id), folder, todo.id, {**outcome, **lost})
