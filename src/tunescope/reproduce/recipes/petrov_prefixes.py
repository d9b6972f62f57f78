"""Petrov et al. 2024, appendix B: how much of what a prefix of 10 could add does a trained one add?

The paper looked at the attention of the last input position over the prefix, renormalised over it, and how far it
varies over inputs: little, so a long prefix acts much like a shorter one. Its code read head L of layer L, 12 of 144
heads; here every head is read, theirs shown beside. New: the effective rank of the bias over inputs, against the span
of the prefix's values, and the same spread before training.
"""

import tempfile
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tunescope.data.read import read
from tunescope.errors import UserError
from tunescope.lab.demo import PACKAGED, task
from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import data_settings, model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.trial.arm import Arm

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench

TITLE = "How attention on a trained prefix of 10 varies over inputs, and how many directions its bias uses"
SOURCE = "Petrov et al. 2024 (arXiv:2310.19698), appendix B"
TAKES = ("quick", "seeds", "model", "data")

LENGTH = 10
COLUMNS = (
    "every head",
    "least head",
    "most",
    "head number = layer number",
    "every head, before training",
    "effective rank of the bias",
    "span of the values",
    "attention on the prefix",
)
PAPER = (".0161", ".1021", ".1744", ".0884", ".0762", ".0689", ".0798", ".1056", ".1627", ".1468", ".1557", ".1022")
NOTES = [
    "First columns: 99th less 1st percentile over inputs of the attention on a prefix position, renormalised over the "
    "prefix, at the last input position (an encoder's first); the mean over positions, one value a prefix.",
    "In the first layer that position's query knows its own token and place alone; where every prompt ends with the "
    "same token, what varies there is the place. An encoder's first layer is left out where every input begins with "
    "the same token: its query is the same for all, so that nothing can vary, whatever the prefix.",
    "Effective rank (Roy and Vetterli 2007) of the bias over inputs: 1 is one direction; the span is what the values "
    "allow, at most the length and the width of a head. Means over heads.",
    "The paper: 20 prefixes, GPT-2 small, its emotion data, 1,984 inputs; its column is one head a layer. Its prefixes "
    "are inputs of the layers, with half the parameters of the free keys and values here, trained for ten epochs of 32 "
    "rows at .01, times .975 every thousand steps; here the rate is .01 too and falls to zero.",
]


def settings(ask: Ask) -> Settings:
    if (ask.model is None) != (ask.data is None):
        raise UserError(f"{ask.name} takes --model and --data together, or neither: then a small model and its task.")
    size: Settings = {
        "seeds": ask.seeds or (2 if ask.quick else 5),
        "steps": 20 if ask.quick else 300,
        "batch_size": 8 if ask.quick else 16,
        "rate": 1e-2,
        "inputs": 32 if ask.quick else 256,
    }
    size |= model_settings(ask.model or str(PACKAGED), ("decoder", "encoder"), ask.name)
    if ask.data is None:
        return size | {"task": {"kind": "generation"}}
    return size | data_settings(ask.data) | _task(ask.data)


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"seed": seed} for seed in range(settings["seeds"])]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.comparison.arms import ready
    from tunescope.comparison.job import Job
    from tunescope.comparison.problem import attached, problem_of
    from tunescope.comparison.score import rows_of
    from tunescope.reproduce.recipes._prefix_use import as_json, prefix_use
    from tunescope.system import machine
    from tunescope.trial.train.loop import train

    bench = _bench(settings)
    arm = ready(Arm("prefix", f"prefix:length={LENGTH},init_from=noise"), bench)
    todo = Job("", arm, (settings["rate"],) * len(arm.specs), unit["seed"], bench.plan.settings.steps)
    with attached(bench, todo, arm.specs) as tuned, machine.seeded(unit["seed"]):
        inputs = [row.input_ids for row in rows_of(bench, todo, tuned, "test")][: settings["inputs"]]
        before = {name: one["spread"] for name, one in as_json(prefix_use(bench.model, inputs)).items()}
        state = train(problem_of(bench, todo, tuned.train()), bench.plan.settings, unit["seed"])
        tuned.eval()
        after = as_json(prefix_use(bench.model, inputs))
    found = {"layers": after, "before": before, "inputs": len(inputs), "metric": bench.task.metric}
    return found | {"dev": state.best_score, "curve": state.curve}


def table(settings: Settings, found: Found) -> Table:
    outcomes = [outcome for _, outcome in found]
    rows = [
        (
            name,
            _row(
                [outcome["layers"][name] for outcome in outcomes],
                [outcome["before"][name] for outcome in outcomes],
                depth,
            ),
        )
        for depth, name in enumerate(outcomes[0]["layers"])
        if any(spread for outcome in outcomes for head in outcome["before"][name] for spread in head)
    ]
    scores = ", ".join(f"{outcome['dev']:.3f}" for outcome in outcomes)
    said = f"Here: {len(found)} prefixes, {outcomes[0]['inputs']} inputs; {outcomes[0]['metric']} on dev: {scores}"
    said += f", the commonest label {settings['commonest']} of all rows." if "commonest" in settings else "."
    return Table(COLUMNS, rows, [*NOTES, said])


def _row(after: list[dict[str, Any]], before: list[Any], depth: int) -> list[Cell]:
    """One layer's cells from every prefix's numbers."""
    heads = [[fmean(head) for head in one["spread"]] for one in after]  # of each prefix, its heads
    theirs = tuple(one[depth] for one in heads if depth < len(one))
    share = (0.0, 1.0)
    return [
        Cell(tuple(map(fmean, heads)), bounds=share),
        Cell(tuple(map(min, heads)), bounds=share),
        Cell(tuple(map(max, heads)), bounds=share),
        Cell(theirs, PAPER[depth] if depth < len(PAPER) else "", bounds=share),
        Cell(tuple(fmean(map(fmean, one)) for one in before), bounds=share),
        Cell(tuple(fmean(one["effective_rank"]) for one in after), digits=2, bounds=(0.0, LENGTH)),
        Cell(tuple(fmean(one["span"]) for one in after), digits=1, bounds=(0.0, LENGTH)),
        Cell(tuple(fmean(one["share"]) for one in after), bounds=share),
    ]


def _task(data: str) -> dict[str, Any]:
    """What to ask of the rows, by their fields, and the share of the commonest label, if they have labels.

    Raises UserError where neither task has its fields.
    """
    rows = read(data)
    fields = set(rows[0])
    if {"input", "target"} <= fields:
        return {"task": {"kind": "generation"}}
    label = next((name for name in ("label_name", "label") if name in fields), None)
    if "text" not in fields or label is None:
        raise UserError(
            f"{data} has the fields {', '.join(sorted(map(str, fields)))}; needed are 'text' and 'label' (or "
            "'label_name'), or 'input' and 'target'. Rename them."
        )
    commonest = Counter(row.get(label) for row in rows).most_common(1)[0][1]
    return {"task": {"kind": "classification", "label": label}, "commonest": round(commonest / len(rows), 3)}


def _bench(settings: Settings) -> "Bench":
    from tunescope.trial.open import open_bench
    from tunescope.trial.plan import Plan
    from tunescope.trial.train.settings import Settings as Training

    steps = settings["steps"]
    training = Training(
        steps=steps, batch_size=settings["batch_size"], eval_every=-(-steps // 3), patience=steps, weight_decay=0.0
    )
    with tempfile.TemporaryDirectory() as folder:
        data = {"train": settings["data"]} if "data" in settings else _lab(Path(folder))
        return open_bench(Plan(model=settings["model"], data=data, task=settings["task"], settings=training))


def _lab(folder: Path) -> dict[str, str]:
    """The packaged model's own task: sort downwards, a skill it was pretrained on and never asked for by name."""
    found = task(folder, "descending")
    return {"train": str(found["train"]), "dev": str(found["dev"]), "test": str(found["test"])}
