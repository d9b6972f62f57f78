"""Where the grids of learning rates begin, and how far they reach: every method at seven rates, on lab worlds.

Six worlds, one of each architecture, of 2 to 6 layers, with a skill that contexts and deltas can learn. A cell is how
far on average a method comes at a rate, as a share of the way from chance to the best there is. Soft prompts have 20
tokens, as the prefixes: with as many numbers as these they would have hundreds.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes.verdict_calibration import question

TITLE = "The learning rates that methods want, on lab worlds"
SOURCE = "ours"
TAKES = ("quick",)
GROWS = True

WORLDS = (6, 54, 69, 111, 126, 159)
CONTEXTS = ("prefix", "prefix:init_from=noise", "soft:length=20", "soft:length=20,init_from=vocabulary")
DELTAS = ("lora", "adapter", "bias", "full")
RATES = {
    **dict.fromkeys(CONTEXTS, (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)),
    **dict.fromkeys(DELTAS, (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)),
}
ALL = tuple(sorted({rate for rates in RATES.values() for rate in rates}))


def settings(ask: Ask) -> Settings:
    arms = ("prefix", "lora") if ask.quick else (*CONTEXTS, *DELTAS)
    size = {"steps": 20 if ask.quick else 200, "batch_size": 16, "prefix": 20}
    return {"worlds": list(WORLDS[:1] if ask.quick else WORLDS), "arms": list(arms)} | size


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"world": world, "arm": arm} for world in settings["worlds"] for arm in settings["arms"]]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    """{"chance", "tried": [[learning rate, dev score or None]]}, of one run at each rate."""
    from tunescope.comparison import comparison
    from tunescope.comparison.entry import AllRefused

    with tempfile.TemporaryDirectory() as scratch:
        usual, arm = question(settings, unit["world"], Path(scratch)), unit["arm"]
        training = replace(usual.settings, eval_every=settings["steps"] // 4, patience=4)
        asked = replace(usual, arms=(arm,), rates=RATES[arm], seeds=(0,), max_seeds=None, beyond=0, settings=training)
        try:
            found: Mapping[str, Any] = comparison.ask(asked, Path(scratch) / "run", quiet=True).results
        except AllRefused as problem:
            return {"chance": 0.0, "tried": [], "reason": problem.reason}
    (tried,) = found["arms"]
    dev = [[one["learning_rate"], one["dev"]] for one in tried["trials"]]
    return {"chance": found["task"].get("chance") or 0.0, "tried": dev}


def table(settings: Settings, found: Found) -> Table:
    """A row a method; in the last column how often each rate came out first, where something was learnt."""
    shares: dict[str, dict[float, list[float]]] = {arm: {} for arm in settings["arms"]}
    first: dict[str, Counter[float]] = {arm: Counter() for arm in settings["arms"]}
    for unit, outcome in found:
        known = {rate: _share(dev, outcome["chance"]) for rate, dev in outcome["tried"]}
        for rate, share in known.items():
            shares[unit["arm"]].setdefault(rate, []).append(share)
        if known and max(known.values()) > 0:
            first[unit["arm"]][max(known, key=lambda rate: known[rate])] += 1
    rows = [(arm, [*(_cell(shares[arm].get(rate)) for rate in ALL), _firsts(first[arm])]) for arm in settings["arms"]]
    notes = [
        "Mean share of the way from chance to the best there is, on development rows; one seed a world. Of rates that "
        "came out equal the lowest is told as first."
    ]
    lost = [f"{unit['arm']} in world {unit['world']}: {one['reason']}" for unit, one in found if one.get("reason")]
    return Table((*(f"{rate:g}" for rate in ALL), "first at"), rows, [*notes, *lost])


def _share(dev: float | None, chance: float) -> float:
    return 0.0 if dev is None else max(dev - chance, 0.0) / (1 - chance)


def _cell(values: list[float] | None) -> Cell:
    return Cell((fmean(values),), bounds=(0.0, 1.0)) if values else Cell(text="")


def _firsts(counts: Counter[float]) -> Cell:
    return Cell(text=", ".join(f"{rate:g} ×{times}" for rate, times in sorted(counts.items())))
