"""Seeds that learn a task or do not: their scores, and what a rate that is chosen at the first seed adds to a mean."""

from typing import Any

import numpy as np

from tunescope.report.cells import Cell
from tunescope.reproduce.recipes._simulated_rows import Array

# the chance that a seed learns; what it then scores; what it scores else
SCORES = ((0.3, 0.85, 0.52), (0.7, 0.85, 0.52), (0.85, 0.85, 0.52), (0.7, 0.90, 0.75))
RATES = (1, 3, 6)  # tried at the first seed
SEEDS = 3
DEV_ROWS = 200
NOTES = [
    "With a chance: a seed scores one of two values, as where training works or does not. One, both or all arms are "
    "so; the true difference is 0, and 500 rows are asked.",
    f"Choice: every rate is tried at the first seed, {DEV_ROWS} development rows choose one, and its trial is that "
    f"seed's run, as in a comparison; the mean over {SEEDS} seeds then lies above the truth by so much, and the first "
    "seed above the others. With one rate nothing is chosen.",
]


def units() -> list[dict[str, Any]]:
    """Coverage where seeds fail, and what the choice of a rate adds to the mean."""
    coverage: list[dict[str, Any]] = [
        {"metric": "accuracy", "mean": learns * high + (1 - learns) * low, "rows": 500, **_said(learns, high, low)}
        for learns, high, low in SCORES
    ]
    return coverage + [{"rates": rates, **_said(*one)} for one in SCORES[:2] for rates in RATES]


def _said(learns: float, high: float, low: float) -> dict[str, float]:
    return {"learns": learns, "high": high, "low": low}


def scores(generator: np.random.Generator, unit: dict[str, Any], shape: int | tuple[int, ...]) -> Array:
    """The score of each seed: high with the chance that it learns, else low."""
    found: Array = np.where(generator.random(shape) < unit["learns"], unit["high"], unit["low"])
    return found


def chosen(unit: dict[str, Any], draws: int) -> dict[str, float]:
    """How far the mean over seeds is above the truth, and the first seed's score above the mean of the others."""
    generator = np.random.default_rng([unit["rates"], round(100 * unit["learns"])])
    trials = scores(generator, unit, (draws, unit["rates"]))
    dev = generator.binomial(DEV_ROWS, trials) / DEV_ROWS
    first = np.take_along_axis(trials, dev.argmax(1)[:, None], 1)
    others = scores(generator, unit, (draws, SEEDS - 1))
    truth = unit["learns"] * unit["high"] + (1 - unit["learns"]) * unit["low"]
    means = np.concatenate([first, others], 1).mean(1)
    return {"above": float(means.mean() - truth), "first": float((first[:, 0] - others.mean(1)).mean())}


def label(unit: dict[str, Any]) -> str:
    seed = f"a seed at {unit['high']:g} with a chance of {unit['learns']:g}, else at {unit['low']:g}"
    if "rates" not in unit:
        return f"coverage: accuracy, {seed}"
    return f"choice of {unit['rates']} rate{'s' * (unit['rates'] > 1)}: {seed}"


def cells(outcome: dict[str, Any]) -> list[Cell]:
    return [Cell(text=f"mean {outcome['above']:+.3f}"), Cell(text=f"first seed {outcome['first']:+.3f}")]
