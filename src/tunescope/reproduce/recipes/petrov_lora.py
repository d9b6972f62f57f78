"""Petrov et al. 2024, section 6.2: a prefix against rank-1 LoRA at exactly equal parameters, on a new skill.

The paper held a prefix of 12 against rank-1 LoRA on what its code calls the MLP, which by its name filter is the MLP
and the output map of attention: 12,288 = 12,288. On the MLP alone it is 10,240, a prefix of 10. Their rates were 5e-5
for the prefix and 5e-3 for LoRA; here each method has its own sweep. Prefix and LoRA together are new.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tunescope.lab.worlds.adaptation import adapted
from tunescope.lab.worlds.lessons import ROWS, Unnamed, digits, lesson
from tunescope.lab.worlds.models import Shape
from tunescope.lab.worlds.world import World
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes._courses import Plan, course, notes, pretraining

TITLE = "Double histogram, new to four layers pretrained on four other skills, at equal parameters"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), section 6.2"
TAKES = ("protocol", "quick", "seeds")
RESUMES = True
GROWS = True

SEEN = ("ascending", "descending", "add1", "add2")
SKILL = "double_histogram"
WITH_O, MLP = "lora:rank=1,alpha=1.0,sites=attn.o,ffn.in,ffn.out", "lora:rank=1,alpha=1.0,sites=ffn.in,ffn.out"
ARMS = {
    "inputs:length=12": ("prefix of 12", "0"),
    WITH_O: ("rank-1 LoRA on the MLP and W_O", ".92"),
    "inputs:length=10": ("prefix of 10", ""),
    MLP: ("rank-1 LoRA on the MLP alone", ""),
    f"inputs:length=6+{WITH_O}": ("prefix of 6 and that LoRA with W_O", ""),
}
PREFIX = "inputs:length=12"
THEIRS = "pretraining 40,000, prefix 100,000, LoRA 10,000 of 64"
PUBLISHED = {
    PREFIX: Plan(steps=100_000, rates=(5e-5,)),
    WITH_O: Plan(steps=10_000, rates=(5e-3,)),
    "pretraining": Plan(steps=40_000, rates=(5e-4,)),
}
TUNED = {
    arm: Plan(
        steps=20_000,
        rates=(1e-2, 5e-2, 2e-1) if arm.startswith("inputs") and "+" not in arm else (3e-3, 1e-2, 3e-2),
        trial=1000,
        longest=8000,
        batch_size=32,
        precision="bfloat16",
    )
    for arm in ARMS
}
TUNED["pretraining"] = Plan(steps=2000, rates=(1e-3,), batch_size=32, precision="bfloat16")
QUICK = {
    PREFIX: Plan(steps=1200, rates=(5e-2,), batch_size=32),
    WITH_O: Plan(steps=1200, rates=(2e-2,), batch_size=32),
    "pretraining": Plan(steps=800, rates=(2e-3,), batch_size=32),
}


def settings(ask: Ask) -> Settings:
    plans = QUICK if ask.quick else {"tuned": TUNED, "paper": PUBLISHED}[ask.protocol]
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or 3,
        "world": asdict(World(length=5, digits=5, few=3) if ask.quick else World()),
        "shape": [2, 4, 64] if ask.quick else [4, 4, 256],
        "test_rows": 500 if ask.quick else 2000,
        "plans": {arm: plan.to_json() for arm, plan in plans.items()},
    }


def worlds(settings: Settings) -> list[Pretraining[Unnamed]]:
    return [_world(settings, seed) for seed in range(settings["seeds"])]


def units(settings: Settings) -> list[dict[str, Any]]:
    arms = [arm for arm in settings["plans"] if arm != "pretraining"]
    return [{"seed": seed, "arm": arm} for seed in range(settings["seeds"]) for arm in arms]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    recipe = _world(settings, unit["seed"])
    model = pretrained(recipe)
    tests = {SKILL: digits(recipe.curriculum.world, (SKILL,), "test", settings["test_rows"], seed=0)}
    given = lesson(recipe.curriculum.world, (SKILL,), ROWS, unit["seed"])
    return dict(adapted(model, unit["arm"], given, tests, course(settings, unit["arm"]), unit["seed"], folder))


def table(settings: Settings, found: Found) -> Table:
    rows = []
    for arm, (label, paper) in ARMS.items():
        outcomes = [outcome for unit, outcome in found if unit["arm"] == arm]
        if outcomes:
            trained = Cell(text=f"{outcomes[0]['trained']:,}")
            tokens = Cell.of(outcomes, "dev")
            rows.append((label, [trained, Cell.of(outcomes, "exact", SKILL, paper=paper), tokens]))
    return Table(
        ("parameters", "whole answers", "answer tokens (dev)"),
        rows,
        notes(settings, THEIRS, [outcome for _, outcome in found]),
    )


def _world(settings: Settings, seed: int) -> Pretraining[Unnamed]:
    return pretraining(settings, SEEN, Shape(*settings["shape"]), seed, World(**settings["world"]))
