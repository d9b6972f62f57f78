"""Do found words move to another model? Source by target, on models that were taught the same names apart.

Three decoders of different sizes are pretrained, each on sequences of its own, on four skills under the same names of
three words; the words have other ids in each, as under another tokenizer. A wrong name is never shown, so that parts of
a name may do for the model that a search asks, and what they do on another is open. Prompts are carried by their text.
"""

from dataclasses import asdict
from functools import partial
from statistics import fmean
from typing import Any

from tunescope.lab.worlds.named_skills import Named
from tunescope.lab.worlds.world_cache import Pretraining, pretrained
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _named_skills
from tunescope.reproduce.recipes._searches import METHODS, built, resolved

TITLE = "Prompts found on one model and carried to others by their text"
SOURCE = "after Wen et al. 2023 (arXiv:2302.03668), table 1, on worlds where the right prompt is known"
TAKES = ("quick", "seeds")

SHAPES = ((2, 4, 64), (4, 4, 64), (2, 4, 96))


def settings(ask: Ask) -> Settings:
    world = Named(skills=("add1", "reverse"), words=12, length=2) if ask.quick else Named()
    return {
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "world": asdict(world),
        "shapes": [list(shape) for shape in SHAPES[: 2 if ask.quick else None]],
        "methods": resolved(["random", "gcg"] if ask.quick else list(METHODS), length=world.length),
        "passes": 10_000 if ask.quick else 60_000,
        "rows": {"train": 2000, "dev": 100, "test": 500},
        "rate": 1e-3,
        "steps": 600 if ask.quick else 2000,
        "batch_size": 64,
    }


def worlds(settings: Settings) -> list[Pretraining[Named]]:
    return [made for language in range(settings["seeds"]) for made in _models(settings, language)]


def units(settings: Settings) -> list[dict[str, Any]]:
    return [
        {"language": language, "source": source, "skill": skill, "method": method}
        for language in range(settings["seeds"])
        for source in range(len(settings["shapes"]))
        for skill in settings["world"]["skills"]
        for method in settings["methods"]
    ]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    made = _models(settings, unit["language"])
    models, skill = [pretrained(one) for one in made], unit["skill"]
    source = made[unit["source"]]
    bench = _named_skills.bench(settings, source, models[unit["source"]], skill)
    search = built(unit["method"], settings["methods"])
    found = search.search(bench, settings["passes"], source.seed, lambda line: None)
    name = _named_skills.name(source, skill)
    texts = {"found": found.text, "name": name, "none": ""}
    return {
        "prompt": found.text,
        "whole": found.text == name,
        "passes": found.passes,
        "exact": {
            key: [
                _named_skills.right(settings, one, model, skill, text) for one, model in zip(made, models, strict=True)
            ]
            for key, text in texts.items()
        },
    }


def table(settings: Settings, found: Found) -> Table:
    """A column a target, and how much less the others write than the source itself."""
    shapes = [f"{layers} layers × {width}" for layers, _, width in settings["shapes"]]
    columns = (*(f"on {shape}" for shape in shapes), "others less itself")
    methods = [method for method in METHODS if method in settings["methods"]]  # of a result read again, by name
    rows = []
    for key, label in (("none", "no prompt"), ("name", "the skill's name")):
        once = methods[0]
        own = [(unit, one) for unit, one in found if unit["source"] == 0 and unit["method"] == once]
        rows.append((label, [*_targets(own, key, len(shapes)), Cell(text="")]))
    for method in methods:
        for source, shape in enumerate(shapes):
            own = [(unit, one) for unit, one in found if (unit["method"], unit["source"]) == (method, source)]
            lost = _named_skills.cell(own, "language", partial(_lost, source=source), least=-1.0)
            cells = [*_targets(own, "found", len(shapes)), lost]
            rows.append((f"{METHODS[method]}, found on {shape}", cells))
    return Table(columns, rows, _notes(settings, found))


def _targets(found: Found, key: str, count: int) -> list[Cell]:
    return [_named_skills.cell(found, "language", partial(_on, key=key, target=target)) for target in range(count)]


def _on(outcome: dict[str, Any], key: str, target: int) -> float:
    """The share of a target model's rows that are right with a text in front: the found one, the name or none."""
    share: float = outcome["exact"][key][target]
    return share


def _lost(outcome: dict[str, Any], source: int) -> float:
    """The mean over the other models, less the share of the model on which the prompt was found."""
    exact: list[float] = outcome["exact"]["found"]
    return fmean(share for target, share in enumerate(exact) if target != source) - exact[source]


def _notes(settings: Settings, found: Found) -> list[str]:
    parts = [one for _, one in found if not one["whole"]]
    wholes = len(found) - len(parts)
    return [
        "Cells: the share of test rows answered whole. Intervals are over "
        f"{settings['seeds']} languages, each the mean over its {len(settings['world']['skills'])} skills.",
        "The models of a language share its names, and neither size, first weights, training rows nor the ids of "
        "words. Wrong names were never shown in pretraining.",
        f"Of {len(found)} found prompts {wholes} are the whole name, which every model was taught. The other "
        f"{len(parts)} are right in {_mean(found, parts, own=True)} of the rows of their own model and in "
        f"{_mean(found, parts, own=False)} of the others'.",
        f"Every search has {settings['passes']:,} passes of a row, a gradient counting three.",
    ]


def _mean(found: Found, parts: list[dict[str, Any]], own: bool) -> str:
    """The mean share of rows that these prompts have right, on their own models or on the others."""
    shares = [
        share
        for unit, one in found
        if one in parts
        for target, share in enumerate(one["exact"]["found"])
        if (target == unit["source"]) is own
    ]
    return f"{fmean(shares):.3f}" if shares else "none"


def _models(settings: Settings, language: int) -> list[Pretraining[Named]]:
    """One a shape, each with a seed and an order of the vocabulary of its own."""
    count = len(settings["shapes"])
    seeds = range(count * language, count * (language + 1))
    return [
        _named_skills.world(settings, shape, seed, language=language, vocabulary_order=seed)
        for shape, seed in zip(settings["shapes"], seeds, strict=True)
    ]
