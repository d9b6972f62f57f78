"""Wang et al. 2023 on a model and data of yours: where information flows through demonstrations, what can be kept.

One demonstration a class, a draw of them for every seed. The story to test: information flows into label words in
shallow layers and from them to the answer in deep ones; label words cut off early hurt most; label words alone keep the
answer.
"""

import math
from typing import Any

from tunescope import files
from tunescope.errors import UserError
from tunescope.reproducing.given import data_settings, model_settings
from tunescope.reproducing.recipe import Ask, Cell, Found, Settings, Table

TITLE = "Label words as anchors: where information flows, and what can be cut or kept"
SOURCE = "Wang et al. 2023 (arXiv:2305.14160), sections 2 to 4"
TAKES = ("quick", "seeds", "model", "data")

SECTIONS = ("flow", "isolate", "auc", "compress")
NOTES = [
    "Saliency shares: into label words (S_wp), from label words to the answer (S_pq); the rest is elsewhere. Loyalty "
    "is to the uncut model's answers; the control cuts as many random words.",
    "The paper's loyalties are GPT2-XL's, the mean of four data sets.",
]
PAPER = {"anchors": ".795", "random-top": ".575", "text_anchor": ".511", "random": ".490"}


def settings(ask: Ask) -> Settings:
    if ask.model is None or ask.data is None:
        raise UserError(f"{ask.name} needs --model MODEL and --data FILE, rows with a text and a label.")
    size: Settings = {"seeds": ask.seeds or (2 if ask.quick else 5), "k": 1, "rows": 24 if ask.quick else 200}
    return size | model_settings(ask.model, ("decoder",), ask.name) | data_settings(ask.data) | _task(ask.data)


def _task(data: str) -> dict[str, Any]:
    """Label words are the labels' names where the rows have them."""
    from tunescope.tasks import reading

    first = reading.read(data)[0]
    return {"label": "label_name" if "label_name" in first else "label"}


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"seed": seed} for seed in range(settings["seeds"])]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from importlib import import_module

    round = _round(settings, unit)
    found = {name: import_module(f"tunescope.anchors.sections.{name}").measure(round) for name in SECTIONS}
    gold = round.gold.bincount(minlength=len(round.labels))
    made = found | {"commonest": float(gold.max() / gold.sum()), "labels": len(round.labels)}
    return dict(files.finite(made))  # an AUC is undefined where the model gives one answer to every row


def _round(settings: Settings, unit: dict[str, Any]) -> Any:
    from tunescope.anchors.study import Asked, rounds_of
    from tunescope.comparing.bench import open_bench
    from tunescope.comparing.plan import Plan, data_paths

    task = {"kind": "classification", "label": settings["label"]}
    plan = Plan(model=settings["model"], data=data_paths(settings["data"]), task=task, seeds=(unit["seed"],))
    (round,) = rounds_of(Asked(plan, settings["k"], settings["rows"]), open_bench(plan))
    return round


def table(settings: Settings, found: Found) -> Table:
    """A row for every number of the story."""
    outcomes = [outcome for _, outcome in found]
    rows = []
    for name, paper, read in _story():
        known = tuple(value for value in map(read, outcomes) if value is not None and math.isfinite(value))
        rows.append((name, [Cell(known, paper) if known else Cell(paper=paper, text="undefined")]))
    return Table(("over draws of demonstrations",), rows, NOTES)


def _story() -> list[tuple[str, str, Any]]:
    """What is read from an outcome: its name, the paper's number, and how."""

    def cut(where: str, words: str) -> Any:
        return lambda one: next(
            cut["label_loyalty"]
            for cut in one["isolate"]["cuts"]
            if (cut["where"], cut["words"], cut["layers"]) == (where, words, 1)
        )

    def way(name: str, number: str) -> Any:
        return lambda one: one["compress"]["ways"][name][number]

    found: list[tuple[str, str, Any]] = [
        ("accuracy", "", lambda one: one["isolate"]["accuracy"]),
        ("accuracy, zero-shot", "", way("zero-shot", "accuracy")),
        ("commonest label", "", lambda one: one["commonest"]),
    ]
    for place, layer in (("first", 0), ("last", -1)):
        found += [
            (f"flow into label words, {place} layer", "", lambda one, at=layer: one["flow"]["shares"][at][0]),
            (f"flow from label words, {place} layer", "", lambda one, at=layer: one["flow"]["shares"][at][1]),
        ]
    for where in ("first", "last"):
        for words in ("label words", "random words"):
            found.append((f"label loyalty, {words} cut in the {where} layer", "", cut(where, words)))
    found += [
        ("AUC of attention to label words, first layer", "", lambda one: one["auc"]["auc"][0]),
        ("AUC of attention to label words, last layer", "", lambda one: one["auc"]["auc"][-1]),
    ]
    for name in ("anchors", "labels", "by saliency", "text_anchor", "random", "random-top", "zero-shot"):
        found.append((f"label loyalty, {name} kept", PAPER.get(name, ""), way(name, "label_loyalty")))
    return found
