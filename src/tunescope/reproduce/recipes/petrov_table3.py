"""Petrov et al. 2024, Table 3: prefixes combine skills that pretraining left, and teach no new one."""

from pathlib import Path
from typing import Any

from tunescope.lab.worlds.adaptation import adapted, unadapted
from tunescope.lab.worlds.lessons import ROWS, Unnamed, digits, lesson
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.world import World
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._courses import Plan, course, notes, pretraining

TITLE = "Four layers pretrained on four unnamed skills; a prefix of 10 for each and for two more: whole answers right"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 5.3, Table 3"
TAKES = ("protocol", "quick", "seeds")
RESUMES = True

SEEN = ("ascending", "descending", "add1", "add2")
NEW = ("ascending_add1", "double_histogram")
PREFIX = "inputs:length=10"
PAPER: dict[str, tuple[str, ...]] = {"pretrained": (".17", ".23", ".34", ".25", "0", "0")}
PAPER |= {
    skill: tuple(words if i == j else "0" for j in range(6))
    for i, (skill, words) in enumerate(zip((*SEEN, *NEW), ("1.00", "1.00", "1.00", "1.00", ".93", ".01"), strict=True))
}


def settings(ask: Ask) -> Settings:
    plans = {
        "tuned": {
            "pretraining": Plan(steps=2000, rates=(1e-3,), batch_size=32, precision="bfloat16"),
            "seen": Plan(steps=300, rates=(1e-2, 5e-2), trial=75, batch_size=32, precision="bfloat16"),
            "new": Plan(steps=2000, rates=(1e-2, 5e-2), trial=200, batch_size=32, precision="bfloat16"),
        },
        "paper": {
            "pretraining": Plan(steps=40_000, rates=(5e-4,)),
            "seen": Plan(steps=20_000, rates=(5e-5,)),
            "new": Plan(steps=500_000, rates=(5e-5,)),
        },
    }
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "length": 6 if ask.quick else 10,
        "shape": [2, 4, 64] if ask.quick else [4, 4, 256],
        "test_rows": 500 if ask.quick else 2000,
        "plans": {arm: plan.to_json(quick=ask.quick) for arm, plan in plans[ask.protocol].items()},
    }


def worlds(settings: Settings) -> list[Pretraining[Unnamed]]:
    return [_world(settings, seed) for seed in range(settings["seeds"])]


def units(settings: Settings) -> list[dict[str, Any]]:
    skills = ("pretrained", *SEEN, *NEW)
    return [{"seed": seed, "skill": skill} for seed in range(settings["seeds"]) for skill in skills]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    skill, recipe = unit["skill"], _world(settings, unit["seed"])
    model = pretrained(recipe)
    tests = {
        name: digits(recipe.curriculum.world, (name,), "test", settings["test_rows"], seed=0) for name in (*SEEN, *NEW)
    }
    if skill == "pretrained":
        return dict(unadapted(model, recipe.curriculum.world.length, tests))
    given = lesson(recipe.curriculum.world, (skill,), ROWS, unit["seed"])
    plan = "seen" if skill in SEEN else "new"
    return dict(adapted(model, PREFIX, given, tests, course(settings, plan), unit["seed"], folder))


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for arm in ("pretrained", *SEEN, *NEW):
        outcomes = [outcome for unit, outcome in found if unit["skill"] == arm]
        tested = zip((*SEEN, *NEW), PAPER[arm], strict=True)
        cells = [Cell.of(outcomes, "exact", skill, paper=words) for skill, words in tested]
        rows.append((arm if arm == "pretrained" else f"prefix for {arm}", cells))
    theirs = "pretraining 40,000, seen 20,000, new 500,000 of 64"
    return Table(
        (*SEEN, *NEW),
        rows,
        ["The paper: means over 3 seeds.", *notes(settings, theirs, [outcome for _, outcome in found])],
    )


def _world(settings: Settings, seed: int) -> Pretraining[Unnamed]:
    return pretraining(settings, SEEN, Shape(*settings["shape"]), seed, World(length=settings["length"]))
