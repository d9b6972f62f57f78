"""Petrov et al. 2024, Table 1: a prefix cannot teach one layer with one head a new attention pattern.

The same with four heads, which reviewers asked the authors for: is it the one head that stands in the prefix's way?
"""

from pathlib import Path
from typing import Any

from tunescope.lab.worlds.adaptation import adapted, unadapted
from tunescope.lab.worlds.lessons import ROWS, Unnamed, digits, lesson
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.world import World
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._courses import Plan, course, notes, pretraining

TITLE = "Pretrained to sort up, adapted to sort down: whole answers right"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 5.1, Table 1"
TAKES = ("protocol", "quick", "seeds")
RESUMES = True

PAPER = {"pretrained": (".91±.05", "0±0"), "full": ("0±0", ".85±.05"), "inputs:length=1": ("0±0", "0±0")}
LABELS = {
    "pretrained": "pretrained",
    "full": "full tuning on descending",
    "inputs:length=1": "prefix of 1 on descending, as layer inputs",
    "prefix:length=1": "prefix of 1 on descending, free keys and values",
}
SKILLS = ("ascending", "descending")


def settings(ask: Ask) -> Settings:
    plans = {
        "tuned": {
            "pretraining": Plan(steps=1500, rates=(3e-3,)),
            "full": Plan(steps=500, rates=(1e-3, 3e-3), trial=150),
            "inputs:length=1": Plan(steps=1500, rates=(1e-2, 5e-2, 2e-1, 1.0), trial=300),
            "prefix:length=1": Plan(steps=1500, rates=(1e-2, 5e-2, 2e-1, 1.0), trial=300),
        },
        "paper": {
            "pretraining": Plan(steps=20_000, rates=(5e-4,)),
            "full": Plan(steps=10_000, rates=(5e-4,)),
            "inputs:length=1": Plan(steps=40_000, rates=(5e-4,)),
        },
    }
    if ask.quick:
        plans["tuned"].pop("prefix:length=1")
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (3 if ask.quick else 10),
        "heads": [1] if ask.quick else [1, 4],
        "length": 6 if ask.quick else 10,
        "width": 48 if ask.quick else 96,
        "test_rows": 500 if ask.quick else 2000,
        "plans": {arm: plan.to_json(quick=ask.quick) for arm, plan in plans[ask.protocol].items()},
    }


def worlds(settings: Settings) -> list[Pretraining[Unnamed]]:
    return [_world(settings, unit) for unit in units(settings)]


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"heads": heads, "seed": seed} for heads in settings["heads"] for seed in range(settings["seeds"])]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    seed, recipe = unit["seed"], _world(settings, unit)
    model = pretrained(recipe)
    tests = {
        skill: digits(recipe.curriculum.world, (skill,), "test", settings["test_rows"], seed=0) for skill in SKILLS
    }
    given = lesson(recipe.curriculum.world, ("descending",), ROWS, seed)
    arms = [arm for arm in settings["plans"] if arm != "pretraining"]
    found = {"pretrained": unadapted(model, recipe.curriculum.world.length, tests)}
    for i, arm in enumerate(arms):
        own = folder / f"arm-{i}"
        found[arm] = adapted(model, published.begun(arm), given, tests, course(settings, arm), seed, own)
    return found


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for heads in settings["heads"]:
        of_heads = [outcome for unit, outcome in found if unit["heads"] == heads]
        for arm, label in LABELS.items():
            outcomes = [outcome[arm] for outcome in of_heads if arm in outcome]
            if outcomes:
                paper = PAPER.get(arm, ("", "")) if heads == 1 else ("", "")
                cells = [Cell.of(outcomes, "exact", skill, paper=w) for skill, w in zip(SKILLS, paper, strict=True)]
                rows.append((label if heads == 1 else f"{heads} heads: {label}", cells))
    theirs = "pretraining 20,000, full 10,000, prefix 40,000 of 64"
    every = [outcome for _, of_heads in found for outcome in of_heads.values() if isinstance(outcome, dict)]
    return Table(SKILLS, rows, ["The paper: mean and deviation over 10 seeds.", *notes(settings, theirs, every)])


def _world(settings: Settings, unit: dict[str, Any]) -> Pretraining[Unnamed]:
    world, shape = World(length=settings["length"]), Shape(1, unit["heads"], settings["width"])
    return pretraining(settings, ("ascending",), shape, unit["seed"], world)
