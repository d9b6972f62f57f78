"""A hard prompt that is known to exist: which searches find it, and after how many passes?

Small decoders are pretrained on four skills, each under a name of three words (`lab.named`); the searches see rows of
one skill without its name and look for three words to put in front. In an open world a wrong name was never shown, so
parts of a name may do; in a strict one the model copies its input under every wrong name, so that a prompt is right as
a whole or not at all.
"""

from dataclasses import asdict
from statistics import median
from typing import Any

from tunescope.lab.worlds.named_skills import Named
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.report.cells import Cell, Table, intervals_over
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _named_skills
from tunescope.reproduce.recipes._searches import METHODS, built, resolved

TITLE = "Searching for a prompt that is known to exist: the three words that name a skill"
SOURCE = "after Wen et al. 2023 (arXiv:2302.03668), section 4, on worlds where the answer is known"
TAKES = ("quick", "seeds")

OPEN, STRICT = 0.0, 0.5  # the share of pretraining under spoiled names
WORLDS = {OPEN: "open", STRICT: "strict"}
ENOUGH = 0.9  # of development rows


def settings(ask: Ask) -> Settings:
    world = Named(skills=("add1", "reverse"), words=12, length=2) if ask.quick else Named()
    return {
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "spoiled": [OPEN] if ask.quick else [OPEN, STRICT],
        "world": asdict(world),
        "methods": resolved(["random", "pez", "gcg"] if ask.quick else list(METHODS), length=world.length),
        "passes": 20_000 if ask.quick else 60_000,
        "rows": {"train": 2000, "dev": 100, "test": 500},
        "shape": [2, 4, 64],
        "rate": 1e-3,
        "steps": 600 if ask.quick else 2000,
        "batch_size": 64,
    }


def worlds(settings: Settings) -> list[Pretraining[Named]]:
    return [_world(settings, spoiled, seed) for spoiled in settings["spoiled"] for seed in range(settings["seeds"])]


def units(settings: Settings) -> list[dict[str, Any]]:
    return [
        {"spoiled": spoiled, "seed": seed, "skill": skill, "method": method}
        for seed in range(settings["seeds"])
        for spoiled in settings["spoiled"]
        for skill in settings["world"]["skills"]
        for method in settings["methods"]
    ]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    made = _world(settings, unit["spoiled"], unit["seed"])
    model, skill = pretrained(made), unit["skill"]
    name = _named_skills.name(made, skill)
    search = built(unit["method"], settings["methods"])
    bench = _named_skills.bench(settings, made, model, skill)
    found = search.search(bench, settings["passes"], unit["seed"], lambda line: None)
    texts = {"found": found.text, "name": name}
    return {
        "exact": {key: _named_skills.right(settings, made, model, skill, text) for key, text in texts.items()},
        "words": sum(one == other for one, other in zip(found.text.split(), name.split(), strict=True)),
        "passes": found.passes,
        "enough_at": next((point.passes for point in found.trace if point.dev >= ENOUGH), None),
        "prompt": found.text,
        "name": name,
    }


def table(settings: Settings, found: Found) -> Table:
    """Three columns a kind of world: names found, whole answers right, and passes until a good prompt was seen."""
    columns = ("name's words", "answers right", "found at")
    kinds = settings["spoiled"]
    rows = []
    for method in [one for one in METHODS if one in settings["methods"]]:  # a result read again has them by name
        cells = []
        for spoiled in kinds:
            own = [(unit, one) for unit, one in found if (unit["method"], unit["spoiled"]) == (method, spoiled)]
            cells += _cells(own, settings["world"]["length"])
        rows.append((METHODS[method], cells))
    names = tuple(f"{WORLDS[spoiled]}: {column}" for spoiled in kinds for column in columns)
    return Table(names, rows, _notes(settings, found))


def _cells(found: Found, length: int) -> list[Cell]:
    seen = [one["enough_at"] for _, one in found if one["enough_at"] is not None]
    when = f"{median(seen):,.0f} ({len(seen)} of {len(found)})" if seen else f"never (0 of {len(found)})"
    words = _named_skills.cell(found, "seed", lambda one: one["words"] / length)
    return [words, _named_skills.cell(found, "seed", lambda one: one["exact"]["found"]), Cell(text=when)]


def _notes(settings: Settings, found: Found) -> list[str]:
    names = [outcome["exact"]["name"] for _, outcome in found]
    return [
        f"Under the right name the models write between {min(names):.3f} and {max(names):.3f} of the answers whole.",
        "Open: the model saw no wrong names in pretraining; strict: in half of it, and copied its input under them.",
        f"{intervals_over(settings['seeds'], 'pretrained model', 'pretrained models')} Each is the mean over its "
        f"{len(settings['world']['skills'])} skills. Name's words: the share of places where the right word stands.",
        f"Every search has {settings['passes']:,} passes of a row, a gradient counting three, looks at the development "
        f"rows included. Found at: the median of the passes by which a look saw {ENOUGH:.0%} of the development rows "
        "right, over the searches that did.",
    ]


def _world(settings: Settings, spoiled: float, seed: int) -> Pretraining[Named]:
    return _named_skills.world(settings, settings["shape"], seed, spoiled=spoiled)
