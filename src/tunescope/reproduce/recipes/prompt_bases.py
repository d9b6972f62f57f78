"""What a soft prompt asks of the model it stands on: its size, its pretraining, and how long it was adapted.

Every given model has rows: a soft prompt, the same where every answer begins with T5's first sentinel (as it did in
pretraining by span corruption), demonstrations in front of the model as it is (the paper's prompt design), and full
tuning. The sentinel is of encoder-decoders whose answers are chosen among labels. `python -m
tunescope.lab.worlds.text_models` makes T5s of your texts that differ in nothing but `--adapted`, or in size.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.models.load import load_tokenizer, model_name
from tunescope.report.cells import Table
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Found, Settings
from tunescope.tasks.prompts import mask

TITLE = "Soft prompts on several base models: size, pretraining objective, LM adaptation"
SOURCE = "Lester et al. 2021 (arXiv:2104.08691), figures 1, 3c and 3d"
TAKES = tuple("models" if option == "model" else option for option in corpus_table.TAKES)
KEEPS = True

LENGTHS = {"tuned": 20, "paper": 100}
SENTINEL = "{input} {mask}"
SHOWN = 4  # demonstrations, of each label where there are labels


def _lines(protocol: str, choose: bool) -> list[Line]:
    prompt = f"soft:length={LENGTHS[protocol]}"
    sentinel = [Line("prompt, sentinel", prompt, template=SENTINEL)] if choose else []
    shown = Line(f"{SHOWN} demonstrations{' a label' if choose else ''}", f"demos:k={SHOWN}")
    return [Line("prompt", prompt), *sentinel, shown, Line("full tuning", "full")]


def settings(ask: Ask) -> Settings:
    if not ask.models:
        raise UserError(f"{ask.name} needs --model MODEL MODEL ..., the bases to hold against one another.")

    choose = corpus_table.has_labels(ask)
    lines = _lines(ask.protocol, choose)
    course, rows = published.course(ask, published.PROMPT_TUNING), published.rows(ask)
    each = [
        corpus_table.settings(replace(ask, model=model, others=()), lines, course, rows, choose=choose)
        for model in ask.models
    ]
    for base in each:  # one without sentinels would fail at that line
        if any(line["template"] == SENTINEL for line in _of(each[0], base)):
            mask.place(SENTINEL, load_tokenizer(base["model"]), "encoder-decoder")
    return each[0] | {"bases": [{key: one[key] for key in corpus_table.OF_MODEL} for one in each]}


worlds = corpus_line.worlds


def units(settings: Settings) -> list[dict[str, Any]]:
    return [
        {"base": number, **unit}
        for number, base in enumerate(settings["bases"])
        for unit in corpus_table.units(settings | {"lines": _of(settings, base)})
    ]


def _of(settings: Settings, base: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of a base: a decoder has no sentinel."""
    return [line for line in settings["lines"] if base["kind"] == "encoder-decoder" or line["template"] != SENTINEL]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    return corpus_line.work(settings | settings["bases"][unit["base"]], unit, folder)


def table(settings: Settings, found: Found) -> Table:
    """A line of a model a row, the smallest model first."""
    rows, bases = [], sorted(enumerate(settings["bases"]), key=lambda one: int(one[1]["parameters"]))
    for base, model in bases:
        of_base = [(unit, outcome) for unit, outcome in found if unit["base"] == base]
        own = corpus_line.table(settings | {"lines": _of(settings, model)}, of_base)
        rows += [(f"{model_name(model['model'])}: {label}", cells) for label, cells in own.rows]
    sizes = ", ".join(f"{model_name(model['model'])} {model['parameters']:,}" for _, model in bases)
    notes = [f"Parameters of the models: {sizes}.", *corpus_line.notes(settings, found)]
    with_sentinel = any(model["kind"] == "encoder-decoder" for model in settings["bases"])
    about = " Sentinel: input and answer have T5's first." if with_sentinel else ""
    chosen = f"Answers are chosen by their log-probability.{about}"
    return Table(own.columns, rows, [chosen, *notes] if settings["choose"] else notes)
