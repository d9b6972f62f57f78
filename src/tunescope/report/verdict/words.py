"""The sentences of a verdict beside its answer: what else bears on it, what it holds for, what is to come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tunescope.report.verdict.evidence import Arm, Evidence, Pair
from tunescope.report.verdict.reader import OVER

ROUNDING = 1e-5  # of an attention weight in float32
PAIR = ("context", "delta")
NEARLY = 2.0  # sizes within this factor are alike: no rank and no length meets a budget to the parameter

OLD_RULE = (
    "This verdict is of an earlier rule, whose intervals were drawn by bootstrap and too narrow where seeds scatter; "
    "`tunescope resume RUN` gives that of today."
)


def standing(results: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict that a results.json holds; one of the earlier rule, which knew no looks, is marked as such."""
    found = dict(results["verdict"])
    if "looks" not in (results.get("protocol") or {}):
        found["sentences"] = [*found["sentences"], OLD_RULE]
    return found


def support(e: Evidence) -> str:
    """What the model does untrained, the yardsticks, seeds that scatter, the mechanism; the term behind plain words."""
    parts = [e.latency]
    if e.yardsticks:
        parts.append(f"To compare with, of other kinds: {', '.join(arm.shown for arm in e.yardsticks)} (yardsticks).")
    parts += [f"{scattered(arm)}." for arm in (e.context, e.delta) if arm and arm.unstable]
    if any(shift > ROUNDING for shift in e.shifts.values()):
        shifts = {name: shift if shift > ROUNDING else 0 for name, shift in e.shifts.items()}
        shares = " and ".join(f"by {100 * shift:.2g} % in {name}" for name, shift in shifts.items())
        moved = " and ".join(f"{shift:.2g} in {name}" for name, shift in shifts.items())
        parts.append(
            f"Which words of the text the model looks at changed {shares}, seen layer by layer; what is put in front "
            f"of a text cannot change that within a layer (attention over the content moved by {moved})."
        )
    return " ".join(parts)


def ahead(e: Evidence) -> str:
    """That another delta than the one dev chose, which a context was held against, is ahead of it on the test rows."""
    assert e.context is not None and e.delta is not None
    others = "; ".join(f"{pair.other}, {pair.told}" for pair in e.ahead)
    return (
        f"{e.delta.name} is the delta with the best dev score, so the context was held against that. On the test rows "
        f"the mean of {e.context.name} is behind another: {others}."
    )


def untold(e: Evidence, pairs: Sequence[Pair]) -> str:
    """That dev hardly tells the delta from others, and that a context, or its run, is not shown to be as good."""
    assert e.delta is not None
    others = "; ".join(f"{pair.other}, {pair.told}" for pair in pairs)
    return (
        f"The development rows hardly tell {e.delta.name} from other deltas, and it is not shown that {pairs[0].arm} "
        f"is no worse than these: {others}."
    )


def scattered(arm: Arm) -> str:
    assert arm.near_best is not None
    return f"{arm.name} is unstable: it came near its best dev score in {arm.near_best[0]} of {arm.near_best[1]} seeds"


def unstable_context(e: Evidence, context: Arm, delta: Arm, pair: Pair) -> str:
    """That a run which suffices was found, where it lies, and what another would cost."""
    assert context.near_best is not None and context.chosen is not None and e.chosen_context is not None
    near, seeds = context.near_best
    where = f" (RUN/arms/{context.chosen['id']}/artifact)" if context.chosen.get("id") else ""
    return (
        f"A {context.name} that suffices was found: seed {context.chosen['seed']}{where}, chosen on dev, is not worse "
        f"than {delta.shown} by more than {e.number(e.margin)} on the test rows: {e.chosen_context.told}. The mean of "
        f"the seeds, {context.shown}, does not show it: {pair.told}. On dev {near} of the {seeds} seeds came near the "
        f"best, and on the test rows {_tries(seeds - 1, (e.suffice or 1) - 1, context.seconds)}."
    )


def _tries(others: int, does: int, seconds: float | None) -> str:
    """What another run that suffices would take, by the seeds beside the chosen one: that one was picked."""
    if not does:
        return f"none of the {others} others passes as the chosen one does: what another would take is not known"
    cost = f", about {seconds * others / does:.0f} s" if seconds else ""
    passes = f"{does} of the {others} others pass{'es' * (does == 1)} as the chosen one does"
    return f"{passes}: another takes {others / does:.1f} tries on average{cost}"


def unstable_delta(e: Evidence, context: Arm, delta: Arm) -> str:
    assert delta.near_best is not None and delta.chosen is not None and e.chosen_delta is not None
    near, seeds = delta.near_best
    return (
        f"{context.shown} is not worse than {delta.shown} on average, but {delta.name} came near its best in {near} of "
        f"{seeds} seeds, and its seed {delta.chosen['seed']}, chosen on dev, is ahead: {e.chosen_delta.told}."
    )


def out_of_time(protocol: Mapping[str, Any], run: str | None) -> str | None:
    """What to run, where the time that was set ended the looks."""
    minutes = (protocol.get("looks") or {}).get("out_of_time")
    if minutes is None or run is None:
        return run
    return f"{run} Within --minutes {minutes:g} no more seeds could be run: `tunescope resume RUN` goes on with them."


def outlook(results: dict[str, Any], answer: str, *, outside: bool) -> str:
    """What the whole comparison would take, by the pilot's own runs, and whether it is worth it.

    outside: the model is none of those that forecasts were held against.
    """
    protocol = results["protocol"]
    whole, seeds = protocol["pilot_of"], len(protocol["pilot_of"]["seeds"])
    longer, tries = whole["steps"] / protocol["steps"], len(whole["rates"]) or whole["trials"]
    seconds, past = 0.0, 0.0
    for arm in results["arms"]:
        own = sum(run.get("seconds") or 0.0 for run in arm.get("runs") or ())
        again = seeds if arm.get("varies", True) else 1  # what is the same at every seed runs once
        seconds += own * (longer * (tries + seeds - 1) if arm.get("trials") else again)
        past += own * longer * (protocol.get("beyond") or 0) * bool(arm.get("trials"))
    most = f", up to {(seconds + past) / 60:.1f} where ends of the grids win" if past else ""
    worth = (
        "it is worth it, for the pilot does not tell"
        if answer == "no verdict"
        else "it is worth it, for how often a pilot of so deep a model is right was never counted"
        if outside
        else "for the answer alone it is not needed; it would give scores with intervals, and an artifact to keep"
    )
    return (
        f"The whole comparison, {whole['steps']} steps and {seeds} seed{'s' * (seeds != 1)}, would take about "
        f"{seconds / 60:.1f} minutes of one worker{most}; {worth}."
    )


def own_sizes(arms: Sequence[dict[str, Any]]) -> str:
    """The sizes given; and which they are, where contexts and deltas store not nearly as much."""
    compared = [one for one in arms if one["group"] in PAIR and one.get("status") == "done"]
    range_of = unequal(((one.get("parameters") or {}).get("stored"), one["name"]) for one in compared)
    return f"arms of unequal size, {range_of} (--budget makes them one)" if range_of else "the sizes given"


def unequal(sizes: Iterable[tuple[int | None, str]]) -> str:
    """The least and the most stored parameters, with whose they are; "" where they are alike or nobody stores any."""
    stored = sorted((size, name) for size, name in sizes if size)
    if not stored or stored[-1][0] <= NEARLY * stored[0][0]:
        return ""
    (least, small), (most, large) = stored[0], stored[-1]
    return f"{least:,} ({small}) to {most:,} ({large}) stored parameters"


def within(budgets: Sequence[int], arms: Sequence[dict[str, Any]]) -> str:
    """The budget; and what the contexts and deltas in it store, where one (of several budgets: every) is well below."""
    most = max(budgets)
    compared = (one for one in arms if one.get("group") in PAIR and one.get("status") == "done")
    stored = [(one.get("parameters") or {}).get("stored") or 0 for one in compared]
    sizes = sorted({size for size in stored if 0 < size <= OVER * most})  # what is over it is no arm of the verdict
    bound = "up to " if len(budgets) > 1 else ""
    if not sizes or sizes[-1 if bound else 0] * OVER >= most:
        return f"{bound}{most:,} stored parameters"
    span = f"from {sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,} in fact"
    return f"{bound or 'at most '}{max(most, sizes[-1]):,} stored parameters ({span})"


def limits(e: Evidence, protocol: dict[str, Any], arms: Sequence[dict[str, Any]]) -> str:
    """What it holds for, and of what it says nothing."""
    budgets = protocol.get("budgets") or [protocol.get("budget")]
    at = within(budgets, arms) if any(budgets) else own_sizes(arms)
    over = "seeds and test rows" if e.seeds > 1 else "test rows only, for there is one seed"
    pair = [arm for arm in (e.context, e.delta) if arm]
    steps = [arm.name for arm in pair if arm.steps]
    unlike = f"Of the two {steps[0]} alone writes steps, which may be the difference. " if len(steps) == 1 else ""
    return unlike * (len(pair) > 1) + (
        f"This holds for this model, these data, {at}, {protocol.get('steps', 'these')} steps and the "
        f"learning rates tried, with intervals over {over}; "
        "it says nothing of other methods, sizes, models or data."
    )
