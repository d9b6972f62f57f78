"""Seconds that a plan's runs take, from those of a step and of a scored row of each arm: counted, nothing is run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tunescope.trial.dev_rows import early_count
from tunescope.trial.plan import NO_TEXT, Plan
from tunescope.trial.rates import trial_steps


@dataclass(frozen=True)
class Costs:
    """Of one arm, in seconds.

    step: an update. row: a row that is scored. begin: what each run begins with. choice: what each seed takes before it
    is scored, such as the orders that demonstrations are tried in. other: what each tested run takes beside its rows.
    varies: whether every seed has a run of its own.
    """

    arm: str
    group: str = "none"
    trained: bool = False
    varies: bool = False
    step: float = 0.0
    row: float = 0.0
    begin: float = 0.0
    choice: float = 0.0
    other: float = 0.0


@dataclass(frozen=True)
class Sizes:
    """Rows that are scored, and whether they are answered by a label."""

    dev: int
    test: int
    labelled: bool


@dataclass(frozen=True)
class Rounds:
    """The seconds of every run, by when they can begin: the trials, those beyond the grid one by one, all seeds."""

    trials: list[float]
    past: list[list[float]]
    seeds: list[float]

    def total(self) -> float:
        return sum(self.trials) + sum(map(sum, self.past)) + sum(self.seeds)

    def at(self, workers: int) -> float:
        """With so many side by side."""
        return sum(side_by_side(some, workers) for some in (self.trials, *self.past, self.seeds))


def rounds(plan: Plan, every: Iterable[Costs], sizes: Sizes) -> Rounds:
    """All that the plan may come to, but for seeds that looks add."""
    found = Rounds([], [[] for _ in range(plan.past)], [])
    for own in every:
        if not own.trained:
            found.seeds.extend([untrained(own, plan, sizes)] * (len(plan.seeds) if own.varies else 1))
            continue
        whole, tested = run(own, plan, sizes, plan.settings.steps), test(own, plan, sizes)
        found.trials.extend(run(own, plan, sizes, steps, plan.trial_steps is None) for steps in _trials(plan))
        past = whole if plan.trial_steps is None else run(own, plan, sizes, plan.trial_steps, False)
        for some in found.past:
            some.append(past)
        known = plan.trial_steps is None  # a trial at the first seed is that seed's run, unless it is shorter
        found.seeds.extend([tested] * known + [whole + tested] * (len(plan.seeds) - known))
    return found


def _trials(plan: Plan) -> list[int]:
    if plan.halving:
        return trial_steps(plan.race)
    return [plan.trial_steps or plan.settings.steps] * plan.race.rates


def run(own: Costs, plan: Plan, sizes: Sizes, steps: int, is_scored: bool = True) -> float:
    """So many steps of a run, with the development scores among them; a pilot's trial is not scored."""
    if not is_scored:
        return own.begin + steps * own.step
    every, count = plan.settings.eval_every, sizes.dev
    if plan.dev_share is not None and plan.pilot_of is None:
        whole, batch = plan.settings.steps, plan.settings.batch_size
        count = early_count(sizes.dev, whole, batch, every, plan.dev_share, sizes.labelled)
    at_end = sizes.dev if count < sizes.dev and steps == plan.settings.steps else 0  # one that was paused has none
    return own.begin + steps * own.step + (-(-steps // every) * count + at_end) * own.row


def untrained(own: Costs, plan: Plan, sizes: Sizes) -> float:
    """A run of an arm that trains nothing, development and test rows."""
    return own.begin + own.choice + sizes.dev * own.row + test(own, plan, sizes)


def test(own: Costs, plan: Plan, sizes: Sizes) -> float:
    """The test rows of a run, and other text where it is asked for."""
    return own.begin + sizes.test * own.row + (own.other if plan.forgetting != NO_TEXT else 0.0)


def side_by_side(runs: Sequence[float], workers: int) -> float:
    """Seconds until all are done, each begun where one ended before, the longest first."""
    free = [0.0] * max(1, workers)
    for seconds in sorted(runs, reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
