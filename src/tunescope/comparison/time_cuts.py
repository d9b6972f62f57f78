"""The comparison that fits into the time one has: what is cut, in an order fixed before anything is run.

Seeds that looks add come on top: they are begun while they will be over in time. All else is counted before the first
step, and the first of these that fits is taken:

1. no figure of what an artifact costs other text, on which no verdict hangs;
2. at most one learning rate beyond its grid;
3. fewer seeds, but three, below which no verdict is given;
4. learning rates raced at successive halving;
5. development scores of a fifth of the passes, then five of them a run, then three;
6. fewer steps, by twentieths, but a quarter of those asked, and 20;
7. no learning rate beyond a grid.

Where not even that fits, arms are left out from the end of the list, and the order is gone through again. What trains
nothing stays, and so does the first context and the first delta: without them there is nothing to compare. Where these
do not fit either, steps go down to a tenth of those asked, of all arms and then of fewer. What is left then is one
seed, with all of the above but as many steps as fit: scores without a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tunescope.comparison.costs import Costs, Sizes, rounds
from tunescope.errors import UserError
from tunescope.report.verdict.interim_looks import LEAST
from tunescope.trial.plan import DEV_SHARE, NO_TEXT, Fit, Plan
from tunescope.trial.plan_check import check
from tunescope.trial.rates import rungs

SCORES = (5, 3)  # of a run
LEAST_STEPS = 20
PARTS, LEAST_PARTS, FEWEST_PARTS = 20, 5, 2  # of the steps
PAIR = ("context", "delta")
SHARE, SECONDS = 0.15, 15.0  # of the time, for loading, the page and what was timed wrongly; and at least


@dataclass(frozen=True)
class Time:
    """What is left for runs, in seconds; how many go on side by side; what is spent before and after them."""

    left: float
    workers: int
    spent: float = 0.0


class TooShort(UserError):  # noqa: N818
    """Nothing fits; minutes: that what is least takes."""

    def __init__(self, message: str, minutes: int):
        super().__init__(message)
        self.minutes = minutes


Cuts = Iterator[tuple[Plan, dict[str, str]]]
Cut = Iterator[tuple[Plan, str, str]]


def reserve(minutes: float) -> float:
    """Seconds of the time that no run is planned in."""
    return max(SECONDS, SHARE * 60 * minutes)


def fitted(plan: Plan, arms: Mapping[str, Sequence[Costs]], sizes: Sizes, time: Time) -> Plan:
    """The plan as it fits, with what was left out.

    arms: every one as typed, with the costs of what it stands for (of several budgets, several).

    Raises:
        TooShort: what is left when all is cut does not fit; the line says how many minutes it takes.
    """
    assert plan.minutes is not None
    least = math.inf
    for cuts, texts in product((ladder, few_steps, one_seed), shorter(arms)):
        costs = [one for text in texts for one in arms[text]]
        gone = [text for text in arms if text not in texts]
        for found, told in cuts(replace(plan, arms=tuple(texts)) if gone else plan):
            seconds = rounds(found, costs, sizes).at(time.workers)
            least = min(least, seconds)
            if seconds <= time.left:
                left_out = [*told.values(), *([f"left out of the arms: {', '.join(gone)}"] if gone else [])]
                return check(replace(found, fit=Fit(plan.minutes, round(seconds, 1), tuple(left_out))))
    needed, rows = _minutes(least + time.spent), plan.settings.batch_size
    trains = any(one.trained for costs in arms.values() for one in costs)
    half = f" Half the rows a step take about half of it (--batch-size {rows // 2})."
    smaller = half if trains and rows > 1 else ""
    raise TooShort(
        f"--minutes {plan.minutes:g}: with everything cut that may be, the runs take about {least / 60:.1f} minutes "
        f"here, loading and timing {time.spent / 60:.1f}.{smaller} Type: --minutes {needed}",
        needed,
    )


def _minutes(seconds: float) -> int:
    """The least whole number whose reserve leaves so many seconds."""
    minutes = max(1, math.ceil(seconds / 60))
    while 60 * minutes - reserve(minutes) < seconds:
        minutes += 1
    return minutes


def shorter(arms: Mapping[str, Sequence[Costs]]) -> Iterator[list[str]]:
    """All arms, then one fewer each time, from the end; one that is trained stays."""
    left = list(arms)
    yield list(left)
    for text in reversed(list(arms)):
        others = [one for other in left if other != text for one in arms[other]]
        groups = {one.group for one in others}
        own = [one for one in arms[text] if one.trained]
        is_last = not any(one.trained for one in others)
        if own and not is_last and all(one.group not in PAIR or one.group in groups for one in own):
            left.remove(text)
            yield list(left)


def ladder(plan: Plan) -> Cuts:
    """The plan, and what it becomes cut by cut, each with what was cut until then, in words."""
    told: dict[str, str] = {}
    yield plan, told
    for cut in (_other_text, _one_past, _seeds, _halved, _scores, _steps, _none_past):
        for less, kind, words in cut(plan):
            plan, told = less, told | {kind: words}
            yield plan, told


def few_steps(plan: Plan) -> Cuts:
    """The fewest seeds with all else cut, and fewer steps than a ladder goes down to."""
    plan, told = _cut(plan, (_other_text, _none_past, _seeds, _halved, _scores))
    for less, kind, words in _steps(plan, range(LEAST_PARTS - 1, FEWEST_PARTS - 1, -1)):
        yield less, told | {kind: words}


def one_seed(plan: Plan) -> Cuts:
    """One seed with all else cut but the steps; then fewer of them."""
    plan, told = _cut(plan, (_other_text, _none_past, _halved, _scores))
    if len(plan.seeds) > 1:
        plan, told = replace(plan, seeds=plan.seeds[:1]), told | {"seeds": "1 seed, which is too few for a verdict"}
    yield plan, told
    for less, kind, words in _steps(plan, range(PARTS - 1, FEWEST_PARTS - 1, -1)):
        yield less, told | {kind: words}


def _cut(plan: Plan, cuts: Sequence[Callable[[Plan], Cut]]) -> tuple[Plan, dict[str, str]]:
    """The plan with all that these cut."""
    told: dict[str, str] = {}
    for cut in cuts:
        for less, kind, words in cut(plan):
            plan, told = less, told | {kind: words}
    return plan, told


def _other_text(plan: Plan) -> Cut:
    if plan.forgetting != NO_TEXT:
        yield replace(plan, forgetting=NO_TEXT), "other text", "no figure of what an artifact costs other text"


def _one_past(plan: Plan) -> Cut:
    if plan.past > 1:
        yield replace(plan, beyond=1), "past", f"1 learning rate beyond its grid, of {plan.past}"


def _none_past(plan: Plan) -> Cut:
    if plan.past:
        yield replace(plan, beyond=0), "past", "no learning rate beyond its grid"


def _seeds(plan: Plan) -> Cut:
    for count in range(len(plan.seeds) - 1, LEAST - 1, -1):
        yield replace(plan, seeds=plan.seeds[:count]), "seeds", f"{count} seeds"


def _halved(plan: Plan) -> Cut:
    if not plan.halving and plan.race.rates > 1 and rungs(plan.race):
        told = "learning rates that have lost stop at the first development score from a third of the steps on"
        yield replace(plan, halving=True), "halving", told


def _scores(plan: Plan) -> Cut:
    if plan.dev_share is None or plan.dev_share > DEV_SHARE:
        plan = replace(plan, dev_share=DEV_SHARE)
        yield plan, "share", "development scores while a run trains of a part of the rows"
    steps = plan.settings.steps
    for count in SCORES:
        if -(-steps // plan.settings.eval_every) > count:
            plan = replace(plan, settings=replace(plan.settings, eval_every=-(-steps // count)))
            yield plan, "scores", f"{count} development scores a run"


def _steps(plan: Plan, parts: range = range(PARTS - 1, LEAST_PARTS - 1, -1)) -> Cut:
    asked = plan.settings.steps
    scores = -(-asked // plan.settings.eval_every)
    least = min(asked, max(LEAST_STEPS, -(-asked * parts[-1] // PARTS)))
    for part in parts:
        steps = max(least, asked * part // PARTS)
        settings = replace(plan.settings, steps=steps, eval_every=-(-steps // scores))
        if steps < asked:
            yield replace(plan, settings=settings), "steps", f"{steps} steps of {asked}"
