"""How often the verdict's interval holds the true difference, and how often looking as seeds come in goes wrong.

Rows are made up, so that the truth is known: two arms alike on average, of which one, both or all arms of the
comparison scatter over seeds, or learn at some seeds alone; then a context behind a delta by nothing, by the margin, or
by more, looked at as seeds come in; and what choosing a rate at the first seed adds to a mean.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tunescope.report.cells import Cell, Table
from tunescope.report.verdict import interim_looks as rule
from tunescope.report.verdict import stats
from tunescope.report.verdict.variance import Pool, pooled
from tunescope.report.verdict.verdict import MARGIN
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _seeds_that_fail as failing
from tunescope.reproduce.recipes._simulated_rows import KINDS, Array, seed_scores, side_scores

TITLE = "How often the verdict's intervals hold the true difference, and its looks decide wrongly"
SOURCE = "ours"
TAKES = ("quick",)

SEEDS = (2, 3, 5, 10, 20)
DEVIATIONS = (0.0, 0.02, 0.05, 0.10)
WHO = {"one arm": (1, 0, 0, 0), "both arms": (1, 1, 0, 0), "all arms": (1, 1, 1, 1)}  # whose seeds scatter, of four
PIECES = (
    *[("accuracy", mean, rows) for mean in (0.7, 0.97) for rows in (100, 500, 2000)],
    *[("row scores", mean, rows) for mean in (0.7, 0.97) for rows in (100, 500, 2000)],
    ("BLEU", 0.4, 200),
)
LOOKED_AT = (0.01, 0.02, 0.05)  # deviations of both arms' seeds
GAPS = (-0.04, -0.02, -0.005, 0.0)
NOTES = [
    "Coverage: the share of simulated comparisons whose nominal 95 % interval holds the true difference, which is 0. A "
    "cell shows the lowest of all its settings, and in brackets the highest. Fewer than three seeds give no verdict.",
    "Scores of seeds are beta: near the ceiling a deviation of .05 or .10 means many seeds at 1 and a rare one far "
    "below. A failure rarer than the seeds that were tried is seen by no interval: those cells stay below .93.",
    "Looks: the context is behind the delta by the gap, seeds of both deviate, and 1,000 rows are asked; margin .02. "
    "Their rows are not by number of seeds: each cell says what it is. Peeking looks at every seed.",
]


def settings(ask: Ask) -> Settings:
    return {"draws": 40 if ask.quick else 1000, "rows": 100 if ask.quick else 2000, "margin": MARGIN}


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"metric": metric, "mean": mean, "rows": rows} for metric, mean, rows in PIECES if rows <= settings["rows"]
    ]
    made += [{"deviation": deviation, "gap": gap} for deviation in LOOKED_AT for gap in GAPS]
    return made + [unit for unit in failing.units() if unit.get("rows", 0) <= settings["rows"]]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    if "gap" in unit:
        return _looked(unit, 2 * settings["draws"], settings["margin"])
    if "rates" in unit:
        return failing.chosen(unit, 100 * settings["draws"])
    draws = settings["draws"] // 4 if unit["metric"] == "BLEU" else settings["draws"]  # slow to draw
    found = []
    for seeds in SEEDS:
        for deviation, who in _scatters(unit):
            generator = np.random.default_rng([seeds, round(1000 * deviation), len(who)])
            found.append(_coverage(unit, generator, (seeds, deviation, who), draws, settings["margin"]))
    return {"cells": found}


def _scatters(unit: dict[str, Any]) -> Iterator[tuple[float, str]]:
    if "learns" in unit:
        yield from ((1.0, who) for who in WHO)
        return
    yield 0.0, "all arms"
    yield from ((deviation, who) for deviation in DEVIATIONS[1:] for who in WHO)


def _coverage(
    unit: dict[str, Any], generator: np.random.Generator, scatter: tuple[int, float, str], draws: int, margin: float
) -> dict[str, Any]:
    """Of one setting: the share that holds 0, the share left undecided, and the median half width."""
    seeds, deviation, who = scatter
    kind, score = KINDS[unit["metric"]], stats.scorer("bleu") if unit["metric"] == "BLEU" else stats.mean_score
    scale = float(getattr(score, "scale", 1.0))
    holds, open_, halves = 0, 0, []
    for _ in range(draws):
        common = kind.common(generator, unit["rows"])
        means = [_scores(generator, unit, deviation * own, seeds) for own in WHO[who]]
        ours, theirs = (dict(enumerate(kind.draw(generator, one, common))) for one in means[:2])
        pool = _pool(generator, (ours, theirs), means[2:], unit, score)
        found = stats.paired(ours, theirs, score, pool=pool)
        holds += found.low <= 0 <= found.high
        open_ += found.low <= -margin * scale <= found.high
        halves.append((found.high - found.low) / 2 / scale)
    return {
        "seeds": seeds,
        "deviation": deviation,
        "who": who,
        "coverage": holds / draws,
        "refused": 1.0 if seeds < rule.LEAST else open_ / draws,
        "half": float(np.median(halves)),
    }


def _scores(generator: np.random.Generator, unit: dict[str, Any], deviation: float, seeds: int) -> Array:
    if deviation and "learns" in unit:
        return failing.scores(generator, unit, seeds)
    return seed_scores(generator, unit["mean"], deviation, seeds)


def _pool(
    generator: np.random.Generator,
    two: Sequence[Mapping[int, Array]],
    others: list[Array],
    unit: dict[str, Any],
    score: Callable[[Array, Array], Array],
) -> Pool | None:
    """Of the two arms' own rows, and of two more arms."""
    kind, scale = KINDS[unit["metric"]], float(getattr(score, "scale", 1.0))
    whole = [np.array([score(run.sum(0)[None], np.array([float(len(run))]))[0] for run in arm.values()]) for arm in two]
    return pooled([*whole, *(scale * side_scores(generator, kind, one, unit["rows"]) for one in others)])


def _looked(unit: dict[str, Any], draws: int, margin: float) -> dict[str, Any]:
    """Of comparisons that look by the rule, and of those that look at every seed with normal intervals."""
    generator = np.random.default_rng([round(1000 * unit["deviation"]), round(-1000 * unit["gap"])])
    kind, most = KINDS["accuracy"], max(rule.LOOKS)
    ways: dict[str, list[tuple[str, int]]] = {"by the rule": [], "peeking": []}
    for _ in range(draws):
        common = kind.common(generator, 1000)
        delta = seed_scores(generator, 0.85, unit["deviation"], most)
        context = seed_scores(generator, 0.85 + unit["gap"], unit["deviation"], most)
        arms = [dict(enumerate(kind.draw(generator, one, common))) for one in (context, delta)]
        ways["by the rule"].append(_by_rule(arms, margin))
        ways["peeking"].append(_peeking(arms, margin))
    return {
        way: {
            "context suffices": sum(answer == "not worse" for answer, _ in ends) / draws,
            "weights needed": sum(answer == "worse" for answer, _ in ends) / draws,
            "seeds": float(np.mean([seeds for _, seeds in ends])),
        }
        for way, ends in ways.items()
    }


def _by_rule(arms: list[dict[int, Array]], margin: float) -> tuple[str, int]:
    looks = rule.planned(rule.LOOKS[0], rule.LOOKS[-1])
    for seeds in looks:
        some = [{seed: arm[seed] for seed in range(seeds)} for arm in arms]
        found = stats.paired(some[0], some[1], level=rule.level(looks), pool=stats.pool_of(some))
        if found.low > -margin or found.high < -margin:
            return ("not worse" if found.low > -margin else "worse"), seeds
    return "undecided", looks[-1]


def _peeking(arms: list[dict[int, Array]], margin: float) -> tuple[str, int]:
    """Stops at the first number of seeds whose normal interval is on one side of the margin."""
    most = max(rule.LOOKS)
    gaps = np.array([float((arms[0][seed] - arms[1][seed]).mean()) for seed in range(most)])
    for seeds in range(rule.LEAST, most + 1):
        half = 1.96 * float(gaps[:seeds].std(ddof=1)) / math.sqrt(seeds)
        away = float(gaps[:seeds].mean()) + margin
        if abs(away) > half:
            return ("not worse" if away > 0 else "worse"), seeds
    return "undecided", most


def table(settings: Settings, found: Found) -> Table:
    """The lowest coverage over test rows, by seeds and what scatters; then what came of the looks."""
    cells = [unit | cell for unit, outcome in found if "learns" not in unit for cell in outcome.get("cells", ())]
    rows = []
    for metric, mean in dict.fromkeys((cell["metric"], cell["mean"]) for cell in cells):
        for deviation in DEVIATIONS:
            own = [c for c in cells if (c["metric"], c["mean"], c["deviation"]) == (metric, mean, deviation)]
            label = f"coverage: {metric} about {mean:g}, seeds deviate by {deviation:g}"
            rows.append((label, [_range([c["coverage"] for c in own if c["seeds"] == seeds]) for seeds in SEEDS]))
    for unit, outcome in found:
        if "gap" in unit:
            label = f"looks: {-unit['gap'] or 0:g} behind, seeds deviate by {unit['deviation']:g}"
            rows.append((label, _ends(outcome)))
    rows += [(failing.label(unit), _failing(outcome)) for unit, outcome in found if "learns" in unit]
    columns = tuple(f"{seeds} seeds" for seeds in SEEDS)
    return Table(columns, rows, [*NOTES, *failing.NOTES], {"cells": cells})


def _failing(outcome: dict[str, Any]) -> list[Cell]:
    if "cells" not in outcome:
        return failing.cells(outcome)
    return [_range([cell["coverage"] for cell in outcome["cells"] if cell["seeds"] == seeds]) for seeds in SEEDS]


def _range(values: list[float]) -> Cell:
    return Cell(text=f"{min(values):.3f} ({max(values):.3f})")


def _ends(outcome: dict[str, Any]) -> list[Cell]:
    own, peeking = outcome["by the rule"], outcome["peeking"]
    said = (
        f"not worse {own['context suffices']:.3f}",
        f"worse {own['weights needed']:.3f}",
        f"{own['seeds']:.1f} seeds used",
        f"peeking: not worse {peeking['context suffices']:.3f}",
        f"peeking: worse {peeking['weights needed']:.3f}",
    )
    return [Cell(text=one) for one in said]
