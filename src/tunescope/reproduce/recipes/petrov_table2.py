"""Petrov et al. 2024, Table 2: a prefix brings out any one of the skills that pretraining mixed."""

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

TITLE = "One layer, four heads, pretrained on four unnamed skills; a prefix of 1 for each: whole answers right"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 5.2, Table 2"
TAKES = ("protocol", "quick", "seeds")
RESUMES = True

SKILLS = ("ascending", "descending", "add1", "add2")
PREFIX = "inputs:length=1"
PAPER = {
    "pretrained": (".25±.13", ".25±.12", ".24±.11", ".22±.07"),
    "ascending": (".95±.02", "", "", ""),
    "descending": ("", ".90±.03", "", ""),
    "add1": ("", "", ".95±.06", ""),
    "add2": ("", "", "", ".98±.05"),
}


def settings(ask: Ask) -> Settings:
    plans = {
        "tuned": {
            "pretraining": Plan(steps=3000, rates=(1e-3,), batch_size=32, precision="bfloat16"),
            PREFIX: Plan(steps=500, rates=(1e-2, 5e-2, 2e-1), trial=100, batch_size=32, precision="bfloat16"),
        },
        "paper": {
            "pretraining": Plan(steps=20_000, rates=(5e-4,)),
            PREFIX: Plan(steps=30_000, rates=(5e-5,)),
        },
    }
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (2 if ask.quick else 10),
        "length": 6 if ask.quick else 10,
        "width": 64 if ask.quick else 256,
        "test_rows": 500 if ask.quick else 2000,
        "plans": {arm: plan.to_json(quick=ask.quick) for arm, plan in plans[ask.protocol].items()},
    }


def worlds(settings: Settings) -> list[Pretraining[Unnamed]]:
    return [_world(settings, seed) for seed in range(settings["seeds"])]


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"seed": seed, "skill": skill} for seed in range(settings["seeds"]) for skill in ("pretrained", *SKILLS)]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    recipe = _world(settings, unit["seed"])
    model = pretrained(recipe)
    tests = {
        skill: digits(recipe.curriculum.world, (skill,), "test", settings["test_rows"], seed=0) for skill in SKILLS
    }
    if unit["skill"] == "pretrained":
        return dict(unadapted(model, recipe.curriculum.world.length, tests))
    given = lesson(recipe.curriculum.world, (unit["skill"],), ROWS, unit["seed"])
    return dict(adapted(model, PREFIX, given, tests, course(settings, PREFIX), unit["seed"], folder))


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for arm in ("pretrained", *SKILLS):
        outcomes = [outcome for unit, outcome in found if unit["skill"] == arm]
        cells = [
            Cell.of(outcomes, "exact", skill, paper=words) for skill, words in zip(SKILLS, PAPER[arm], strict=True)
        ]
        rows.append((arm if arm == "pretrained" else f"prefix for {arm}", cells))
    theirs = "pretraining 20,000, prefix 30,000 of 64"
    paper = (
        "The paper: mean and deviation over 10 seeds; 0 to .01 off the diagonal. Its layer has no norm before "
        "attention; here it has one."
    )
    return Table(SKILLS, rows, [paper, *notes(settings, theirs, [outcome for _, outcome in found])])


def _world(settings: Settings, seed: int) -> Pretraining[Unnamed]:
    return pretraining(settings, SKILLS, Shape(1, 4, settings["width"]), seed, World(length=settings["length"]))
