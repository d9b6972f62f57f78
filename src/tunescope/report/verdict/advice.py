"""What to run where there is no verdict, computed: seeds, rows, steps or larger rates, whichever binds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from tunescope.report.verdict.evidence import Arm, Evidence, Pair
from tunescope.report.verdict.interim_looks import LEAST, level, planned
from tunescope.report.verdict.stats import unseen
from tunescope.report.verdict.variance import quantile

POWER = 0.8
FUTILE = 0.2  # the power below which more seeds are not worth their time, even if all else goes well
MOST = 200  # seeds, and times the test rows, beyond which nothing is advised

Protocol = Mapping[str, Any]


@dataclass(frozen=True)
class Advice:
    """What to run, a sentence; and whether more seeds can help."""

    text: str
    more_seeds: bool = False


def few_seeds(had: int) -> Advice:
    """had: the seeds that ran, of those typed and of those added since."""
    return Advice(f"Run it with at least {LEAST} seeds: `tunescope compare ... --seeds {LEAST}` (it had {had}).", True)


def more_seeds(protocol: Protocol, had: int) -> Advice:
    """Twice as many, where what came out is the seeds' and not yet any arm's."""
    begun, option = _asking(protocol)
    return Advice(f"More seeds tell an arm from its luck: `{begun} {option} {2 * had}`.", True)


def seeds_or_steps(e: Evidence, protocol: Protocol, *arms: Arm) -> Advice:
    """Of arms that are not above their floor: seeds, where those that they had scatter; else steps."""
    return more_seeds(protocol, e.seeds) if any(arm.unstable for arm in arms) else longer(e, protocol, *arms)


def steadier(protocol: Protocol, delta: Arm) -> Advice:
    """Of a delta whose chosen run is ahead though its mean is decided, and is not: more seeds have told it."""
    steps = protocol.get("steps")
    twice = f"`--steps {2 * steps}`" if isinstance(steps, int) else "twice the steps (`--steps`)"
    return Advice(
        f"More seeds do not make {delta.name} steadier; {twice}, or a smaller learning rate (`--lr`), may. Who keeps "
        "one run keeps the one that dev chose."
    )


def longer(e: Evidence, protocol: Protocol, *arms: Arm | None) -> Advice:
    """More steps; and rates past the end of those tried, of which one alone has none."""
    steps = protocol.get("steps")
    twice = f"`--steps {2 * steps}`" if isinstance(steps, int) else "twice the steps (`--steps`)"
    if protocol.get("trials_per_arm") == 1:
        return Advice(f"Run it again with {twice}, and more learning rates than one (`--trials`, or `--lr`).")
    beyond = (protocol.get("beyond") or 0) + 2
    cut = [arm.name for arm in arms if arm and arm.name in e.edges]
    rates = f"; the best learning rate of {' and '.join(cut)} was the last tried" if cut else ""
    return Advice(f"Run it again with {twice}, and rates past the end of the grid, `--beyond {beyond}`{rates}.")


def wide(e: Evidence, protocol: Protocol, pair: Pair, arms: tuple[Arm, Arm]) -> Advice:
    """How many seeds or rows would decide with POWER, if the difference is what was seen.

    With --k-shot every seed draws its rows at first: none is added later, and a new run has more.
    """
    gap = abs(pair.difference + e.margin)
    return _more_alike(e, pair, gap) if pair.widened else _seeds_or_rows(e, protocol, pair, arms, gap)


def _seeds_or_rows(e: Evidence, protocol: Protocol, pair: Pair, arms: tuple[Arm, Arm], gap: float) -> Advice:
    """Seeds, or rows, or the two, as the parts of the variance have it."""
    (begun, option), parts = _asking(protocol), _parts(pair)
    helps = _seeds_help(pair, parts, max(gap, e.margin))
    more = range(pair.seeds + 1, MOST + 1)
    at = _levels(protocol, pair)
    seeds = next((n for n in more if _decides(_with_seeds(pair, parts, n), gap, at(n), n, e.rows)), 0)
    if seeds:
        time = _time(seeds - pair.seeds, arms)
        return Advice(
            f"{seeds - pair.seeds} more seeds{time} would decide with {100 * POWER:.0f} % power, if the difference is "
            f"what was seen: `{begun} {option} {seeds}`.",
            helps,
        )
    once = next((n for n in more if _decides(_with_seeds(pair, parts, n), gap, level((n,)), n, e.rows)), 0)
    if once:  # though no run that goes on from this one would, with its looks
        return Advice(
            f"{once} seeds in a new run that looks once would decide with {100 * POWER:.0f} % power, if the difference "
            f"is what was seen, and more looks at this one would not: `tunescope compare ... --seeds {once}`.",
            helps,
        )
    rows = _enough_rows(e, parts, gap, pair.seeds, pair.level)
    if rows:
        return Advice(
            f"More seeds alone do not decide it, for there are too few test rows: about {rows:,} of them (now "
            f"{e.rows:,}) would with {100 * POWER:.0f} % power, if the difference is what was seen (`--test`).",
            helps,
        )
    both = _both(e, pair, parts, gap, at)
    if both:
        seeds, rows = both
        return Advice(
            f"Neither more seeds nor more test rows alone decide it: {seeds} seeds and about {rows:,} test rows (now "
            f"{pair.seeds} and {e.rows:,}) would with {100 * POWER:.0f} % power, if the difference is what was seen "
            f"(`--test`, `{option}`).",
            helps,
        )
    return _too_near(e, gap, helps)


def _too_near(e: Evidence, gap: float, helps: bool = False) -> Advice:
    return Advice(
        f"The difference seen is {e.number(gap)} away from -{e.number(e.margin)}, too little for {MOST} seeds on "
        f"{MOST} times the test rows to tell the side; with a wider margin (`--margin`), set beforehand, ask again.",
        helps,
    )


def _more_alike(e: Evidence, pair: Pair, gap: float) -> Advice:
    """Of arms that answer the rows alike: more of these alone leave less room for rows that they would not."""
    parts = {"seeds": 0.0, "rows": 0.0, "both": 0.0, **pair.parts}
    enough = (n for n in _rows(e.rows) if unseen(n, pair.level, e.scale) < gap)
    rows = next((n for n in enough if _decides(_with_rows(e, parts, n), gap, pair.level, pair.seeds, n)), 0)
    if not rows:
        return _too_near(e, gap)
    return Advice(
        "More seeds do not decide it, for at half of them or more no test row is answered otherwise by the two, and so "
        f"few rows leave open that others are: about {rows:,} (now {e.rows:,}) would decide, if they are answered "
        "alike too (`--test`)."
    )


def _asking(protocol: Protocol) -> tuple[str, str]:
    """The command and the option that bring more seeds: with --k-shot they are there from a run's begin."""
    drawn = protocol.get("k_shot") is not None
    return ("tunescope compare ...", "--seeds") if drawn else ("tunescope resume RUN", "--max-seeds")


def _levels(protocol: Protocol, pair: Pair) -> Callable[[int], float]:
    """The level of the interval that a run of so many seeds at most will have: one resumed has all looks on the way."""
    first = len(protocol.get("seeds") or ()) or pair.seeds
    return lambda most: level((most,) if protocol.get("k_shot") is not None else planned(min(first, most), most))


def _both(
    e: Evidence, pair: Pair, parts: Mapping[str, float], gap: float, at: Callable[[int], float]
) -> tuple[int, int] | None:
    """Seeds and rows that together would decide, with the fewest answers to be scored; None beyond MOST of each."""
    found = []
    for seeds in range(pair.seeds + 1, MOST + 1):
        rows = _enough_rows(e, _with_seeds(pair, parts, seeds), gap, seeds, at(seeds))
        if rows:
            found.append((seeds, rows))
    return min(found, key=lambda one: one[0] * one[1], default=None)


def _parts(pair: Pair) -> Mapping[str, float]:
    """Of the variance. Where it is not told apart, all of it is the seeds'."""
    if sum(pair.parts.values()) > 0:
        return pair.parts
    freedom = pair.freedom or math.inf
    return {"seeds": ((pair.high - pair.low) / 2 / quantile(pair.level, freedom)) ** 2, "rows": 0.0, "both": 0.0}


def _with_seeds(pair: Pair, parts: Mapping[str, float], seeds: int) -> Mapping[str, float]:
    fewer = pair.seeds / seeds
    return {**parts, "seeds": parts["seeds"] * fewer, "both": parts["both"] * fewer}


def _with_rows(e: Evidence, parts: Mapping[str, float], rows: int) -> Mapping[str, float]:
    fewer = e.rows / rows
    return {**parts, "rows": parts["rows"] * fewer, "both": parts["both"] * fewer}


def _enough_rows(e: Evidence, parts: Mapping[str, float], gap: float, seeds: int, sure: float) -> int:
    """The fewest rows that decide with so many seeds, of which these are the parts; 0 where none do."""
    asked = _rows(e.rows)
    return next((n for n in asked if _decides(_with_rows(e, parts, n), gap, sure, seeds, n)), 0)


def _rows(now: int) -> list[int]:
    """Numbers of rows to ask for, of two digits."""
    larger = {float(f"{now * 1.05**step:.2g}") for step in range(1, round(math.log(MOST) / math.log(1.05)))}
    return sorted(int(one) for one in larger if one > now)


def _decides(parts: Mapping[str, float], gap: float, sure: float, seeds: int, rows: int) -> bool:
    """parts: of the variance that so many seeds and rows leave."""
    reach = quantile(sure, _freedom(parts, seeds, rows)) + NormalDist().inv_cdf(POWER)
    return reach * math.sqrt(sum(parts.values())) <= gap


def _freedom(parts: Mapping[str, float], seeds: int, rows: int) -> float:
    """Satterthwaite's degrees of freedom, as the interval of such a table has them: `variance.Scatter.freedom`.

    The mean square of the seeds has the interaction in it, as that of the rows has.
    """
    of_seeds, of_rows = max(seeds - 1, 1), max(rows - 1, 1)
    spread = (parts["seeds"] + parts["both"]) ** 2 / of_seeds + (parts["rows"] + parts["both"]) ** 2 / of_rows
    spread += parts["both"] ** 2 / (of_seeds * of_rows)
    return max(1.0, sum(parts.values()) ** 2 / spread) if spread else 1.0


def _seeds_help(pair: Pair, parts: Mapping[str, float], gap: float) -> bool:
    """Whether endless seeds would leave a fair chance to decide, if the gap is as large as is still likely."""
    likely = gap + math.sqrt(sum(parts.values()))
    reach = quantile(pair.level, math.inf) + NormalDist().inv_cdf(FUTILE)
    return reach * math.sqrt(parts["rows"]) <= likely


def _time(seeds: int, arms: tuple[Arm, Arm]) -> str:
    known = [arm.seconds for arm in arms if arm.seconds is not None]
    if len(known) < len(arms):
        return ""
    seconds = seeds * sum(known)
    return f" (about {max(1.0, seconds):.0f} s)" if seconds < 90 else f" (about {seconds / 60:.0f} min)"
