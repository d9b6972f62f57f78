"""Wang et al. 2023: how strongly the answer looks at each label word, learned from the rows of five demonstrations.

Five rows of each label are drawn. The first stands in front as a demonstration; or all five do; or the first does,
and one scalar for every layer, head and label word is trained on the five, by the published course.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.reproduce import corpus_line, corpus_table, piece
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.published import Course
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _label_tasks
from tunescope.reproduce.recipes._label_tasks import Asked
from tunescope.tasks.kinds.classification import Classification
from tunescope.trial.train.settings import Settings as Training

TITLE = "Anchor re-weighting: a scalar for every layer, head and label word, beside more demonstrations"
SOURCE = "Wang et al. 2023 (arXiv:2305.14160), section 4.1 (GPT2-XL)"
TAKES = ("quick", "seeds", "model", "data", "precision", "inputs", "lines", "template", "words")
KEEPS = True

FIRST = 42  # of the paper's seeds, 42 to 46
RATE, EPOCHS = 0.01, 10  # as published, with batches of one row
TESTED = 300
PUBLISHED = {
    "sst2": Asked("Review: {text}\nSentiment:", {"negative": "Negative", "positive": "Positive"}),
    "ag_news": Asked(
        "Article: {text}\nAnswer:",
        {"world": "World", "sports": "Sports", "business": "Business", "technology": "Technology"},
    ),
    "trec": Asked(
        "Question: {text}\nAnswer Type:",
        {
            "abbreviation": "Abbreviation",
            "description": "Description",
            "entity": "Entity",
            "human": "Person",
            "location": "Location",
            "number": "Number",
        },
    ),
}


PAPER = {  # by corpus: one demonstration, five, re-weighted
    "sst2": (".613", ".648", ".901"),
    "trec": (".576", ".604", ".609"),
    "ag_news": (".733", ".525 with three", ".819"),
}


def settings(ask: Ask) -> Settings:
    k = 2 if ask.quick else 5
    rows, course = {"test": 20 if ask.quick else TESTED}, Course(steps=1, batch_size=1)
    made = corpus_table.settings(replace(ask, lines=()), (), course, rows, ("decoder",), choose=True)
    arms = {
        "one demonstration a label": "demos:k=1",
        f"{k} demonstrations a label": f"demos:k={k}",
        "one, and its label words re-weighted": "demos:k=1+reweight",
    }
    lines = [
        Line(label, arm, paper={name: {"accuracy": told[index]} for name, told in PAPER.items()})
        for index, (label, arm) in enumerate(arms.items())
    ]
    labels = {row["label"] for row in corpus_table.parts(made)["train"]}
    return {key: made[key] for key in ("data", "sha256", "rows", "choose", "device")} | {
        **{key: made[key] for key in ("model", "kind", "weights", "parameters")},
        "precision": made["course"]["precision"],
        "seeds": ask.seeds or (1 if ask.quick else 5),
        "task": _label_tasks.task(ask, made, PUBLISHED, "{text}\nAnswer:") | {"by": "words"},
        "lines": corpus_table.kept(replace(ask, quick=False), lines, None),
        "k": k,
        "steps": (1 if ask.quick else EPOCHS) * k * len(labels),
    }


worlds = corpus_line.worlds


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"seed": FIRST + index} for index in range(settings["seeds"])]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A test accuracy of every line, all on the rows that the seed drew; why there is none of a line."""
    from tunescope.comparison.comparison import compare
    from tunescope.comparison.entry import AllRefused

    arms = [line["arm"] for line in settings["lines"]]
    try:
        done = compare(
            settings["model"],
            _label_tasks.files(settings, folder, k_shot=True),
            arms=arms,
            task=Classification(**{key: value for key, value in settings["task"].items() if key != "kind"}),
            seeds=[unit["seed"]],
            k_shot=settings["k"],
            trials=1,
            beyond=0,
            learning_rates=(RATE,),
            settings=_training(settings),
            dev_share=1.0,
            forgetting="none",
            out=folder / "run",
        )
    except AllRefused as problem:
        return {"scores": {}, "refused": dict.fromkeys(arms, problem.reason)}
    by_name = {arm["spec"]: arm for arm in done.results["arms"]}
    return {
        "status": piece.status(arm["status"] for arm in by_name.values()),
        "scores": {name: [run["test"]["accuracy"] for run in by_name[name]["runs"]] for name in arms},
        "refused": {
            name: by_name[name]["reason"] or by_name[name]["status"]
            for name in arms
            if by_name[name]["status"] != "done"
        },
    }


def _training(settings: Settings) -> Training:
    steps, precision = settings["steps"], settings["precision"]
    same = {"schedule": "constant", "warmup": 0.0, "weight_decay": 0.0, "eval_every": steps, "patience": steps}
    return Training(steps=steps, batch_size=1, precision=precision, **same)


def table(settings: Settings, found: Found) -> Table:
    """A line a row: accuracy over draws of the rows. A line that a draw was lost of has no score."""
    rows = []
    for line in settings["lines"]:
        arm, paper = line["arm"], line["paper"].get("accuracy", "")
        lost = {unit["seed"]: one["refused"][arm] for unit, one in found if one["refused"].get(arm)}
        values = () if lost else tuple(value for _, one in found for value in one["scores"][arm])
        text = _label_tasks.lost("draw", lost, len(found))
        rows.append((line["label"], [Cell(values, paper, text=text, bounds=(0.0, 1.0))]))
    return Table(("accuracy",), rows, _notes(settings))


def _notes(settings: Settings) -> list[str]:
    task, k = settings["task"], settings["k"]
    return [
        f"Asked by {task['template']!r}; {k} rows of each label by each of {settings['seeds']} draws, over which the "
        f"intervals are; tested on {settings['rows']['test']:,} rows at most.",
        f"Re-weighting is trained for {settings['steps']:,} steps of one row by Adam at {RATE:g}; the last state is "
        "kept. It sees the row that stands in front too, where the paper's four were others than the demonstration.",
        "Demonstrations are parted by an empty line, the paper's by a line's end.",
    ]
