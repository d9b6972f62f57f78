"""Where writing steps helps a decoder of yours, and where it loses: the procedures of `chain-of-thought`, in words.

Prompted: demonstrations with the answer at once, and with every state in front of it. Tuned: LoRA on answers at once,
on as many more of them as have as many tokens as the steps do, and on states and answer. What is scored, and what
rates and steps are chosen by, is the answer behind "The answer is".
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from tunescope.errors import UserError
from tunescope.lab.worlds import procedures
from tunescope.report.cells import Cell, Table, intervals_over
from tunescope.report.finding import HeatMap
from tunescope.report.pictures import draw
from tunescope.report.verdict import edges
from tunescope.reproduce import corpus_line, corpus_table, piece
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import model_settings
from tunescope.reproduce.recipe import Found, Settings
from tunescope.tasks.kinds.reasoning import Reasoning
from tunescope.tasks.prompts.chain import Chain
from tunescope.trial.train.settings import Settings as Training

TITLE = "Three steps of a procedure in words, on a given decoder: the answer at once or with its steps"
SOURCE = "our own, after Wei et al. 2022 (arXiv:2201.11903); `chain-of-thought` has the same trained from scratch"
TAKES = ("quick", "seeds", "model", "steps", "precision", "lines")
KEEPS = True

ASKED = {
    "plus-one": "Add one to each digit, 9 becoming 0, three times: {}",
    "neighbour-sums": "To each digit add the one before it, to the first the last, and keep the last digit of each "
    "sum, three times: {}",
    "hops": "The last digit is a place in the eight digits before it, counted from 0; read the digit there, go to the "
    "place that it names, and read on, three digits in all: {}",
}
ONE_DIGIT = ("hops",)  # what is answered
ROW = "{} three times"
SHOWN, TEMPLATE, LEAD = 8, "Q: {input}\nA:", "The answer is"
PROMPTED, ONCE, TOKENS, STEPS = "prompted", "at once", "tokens", "steps"
SHOWN_ONCE, SHOWN_STEPS = f"demos:k={SHOWN}", f"demos:k={SHOWN}+cot"
ARMS = {PROMPTED: (SHOWN_ONCE, SHOWN_STEPS), ONCE: ("lora",), TOKENS: ("lora",), STEPS: ("cot+lora",)}


def settings(ask: Ask) -> Settings:
    from tunescope.system.machine import default_device, precision_on

    if ask.model is None:
        raise UserError(f"{ask.name} needs --model MODEL, a decoder. Without one: tunescope reproduce chain-of-thought")
    kept = corpus_table.chosen(ask, [ROW.format(name) for name in ASKED])
    cases = [name for name in ASKED if ROW.format(name) in kept]
    return model_settings(ask.model, ("decoder",), ask.name) | {
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "cases": cases[-1:] if ask.quick else cases,
        "rows": {"dev": 6, "test": 8} if ask.quick else {"dev": 50, "test": 100},
        "steps": ask.steps or (2 if ask.quick else 100),
        "batch_size": 8,
        "precision": precision_on(default_device(), ask.precision),
        "trials": 1 if ask.quick else 3,
    }


worlds = corpus_line.worlds


def units(settings: Settings) -> list[dict[str, Any]]:
    return [{"procedure": name, "way": way} for name in settings["cases"] for way in (PROMPTED, ONCE, TOKENS, STEPS)]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Arm -> the share of test answers right, a seed each, with what was learned and which rates were tried."""
    name, way, batch = unit["procedure"], unit["way"], settings["batch_size"]
    once, written = _tokens(settings, name)
    steps = round(settings["steps"] * written / once) if way == TOKENS else settings["steps"]
    rows = {part: _rows(name, part, count) for part, count in settings["rows"].items()}
    rows["train"] = _rows(name, "train", SHOWN * settings["seeds"] if way == PROMPTED else steps * batch)
    arms = _compared(settings, corpus_line.written(rows, folder / "data"), ARMS[way], folder, steps)
    targets = [row["target"] for row in rows["test"]]
    runs = {name: arm["runs"] if arm["status"] == "done" else [] for name, arm in arms.items()}  # else a seed is lost
    return {
        "status": piece.status(arm["status"] for arm in arms.values()),
        "updates": 0 if way == PROMPTED else steps,
        "tokens": 0 if way == PROMPTED else round(steps * batch * (written if way == STEPS else once)),
        "train": len(rows["train"]),
        "scores": {name: [run["test"]["exact_match"] for run in own] for name, own in runs.items()},
        "digits": {name: [_digits(run, targets, folder) for run in own] for name, own in runs.items()},
        "unread": {name: [run["reading"]["unread"] for run in own] for name, own in runs.items()},
        "rates": {name: arm["learning_rate"] for name, arm in arms.items()},
        "trials": {name: [(one["learning_rate"], one["dev"]) for one in arm["trials"]] for name, arm in arms.items()},
        "refused": {name: arm["reason"] for name, arm in arms.items()},
    }


def _tokens(settings: Settings, name: str) -> tuple[float, float]:
    """Tokens that a row teaches, on average over a hundred: the answer at once, and steps and answer."""
    from tunescope.models.load import load_tokenizer

    rows, tokenizer = _rows(name, "train", 100), load_tokenizer(settings["model"])
    tasks = [_task(max_new_tokens=1, **more) for more in ({}, {"chain": Chain(), "taught": True})]
    taught = [task.encode(rows, tokenizer, model_kind="decoder", train=True) for task in tasks]
    once, written = (sum(len(row.target_ids) for row in some) / len(some) for some in taught)
    return once, written


def _task(**more: Any) -> Reasoning:
    return Reasoning(template=TEMPLATE, lead=LEAD, **more)


def _digits(run: Mapping[str, Any], targets: Sequence[str], folder: Path) -> float:
    """The share of an answer's digits that are right, each in its place."""
    outputs, right = corpus_line.tested(run, folder)["outputs"], 0
    for output, target in zip(outputs, targets, strict=True):
        right += sum(one == other for one, other in zip(output.split(), target.split(), strict=False))
    return right / sum(len(target.split()) for target in targets)


def _rows(name: str, part: Any, count: int) -> list[dict[str, str]]:
    """So many questions in words, each once, with the answer and the states on the way to it."""
    procedure, drawn, found = procedures.find(name), count, dict[str, dict[str, str]]()
    while len(found) < count:
        given = procedure.given(part, drawn, seed=0)
        made = (_row(name, *one) for one in zip(given, *procedure.states(given), strict=True))
        found, drawn = {row["input"]: row for row in made}, drawn + count
    return list(found.values())[:count]


def _row(name: str, digits: Any, *states: Any) -> dict[str, str]:
    steps = ", then ".join(map(_spaced, states)) + "."
    return {"input": ASKED[name].format(_spaced(digits)), "target": _spaced(states[-1]), "steps": steps}


def _spaced(digits: Any) -> str:
    return " ".join(map(str, digits.tolist()))


def _compared(
    settings: Settings, data: Mapping[str, str], arms: Sequence[str], folder: Path, steps: int
) -> dict[str, Any]:
    """The arms of a comparison as results.json has them, by name."""
    from tunescope.comparison.comparison import compare
    from tunescope.comparison.entry import AllRefused

    asked = {key: settings[key] for key in ("batch_size", "precision")}
    how = Training(steps=steps, eval_every=max(1, steps // 5), patience=5, **asked)
    try:
        done = compare(
            settings["model"],
            data,
            arms=list(arms),
            task=_task(),
            seeds=settings["seeds"],
            trials=settings["trials"],
            settings=how,
            forgetting="none",
            out=folder / "run",
        )
    except AllRefused as problem:  # such as demonstrations that are longer than the model reads
        return {name: corpus_line.REFUSED | {"reason": problem.reason} for name in arms}
    return {arm["name"]: arm for arm in done.results["arms"]}


def table(settings: Settings, found: Found) -> Table:
    """A procedure a row: prompted and tuned, at once and with steps, and what steps gain seed by seed; drawn, too."""
    rows = []
    for name in settings["cases"]:
        by_way = {unit["way"]: outcome for unit, outcome in found if unit["procedure"] == name}
        rows.append((ROW.format(name), _cells(by_way, "scores")))
        if name not in ONE_DIGIT:
            rows.append((f"{name}, digit by digit", _cells(by_way, "digits")))
    prompted = (f"{SHOWN} shown, at once", f"{SHOWN} shown with steps", "gain")
    tuned_ways = ("tuned at once", "as many tokens", "tuned with steps", "gain")
    names = (*prompted, *tuned_ways)
    return Table(names, rows, _notes(settings, found), pictures={"right.svg": _picture(names, rows)})


def _picture(names: Sequence[str], rows: Sequence[tuple[str, list[Cell]]]) -> Markup:
    """The means of all but the gains, a procedure a row."""
    shown = [index for index, name in enumerate(names) if name != "gain"]
    means = [[fmean(cells[at].values) if cells[at].values else math.nan for at in shown] for _, cells in rows]
    labels = [label.removesuffix(" three times").replace("digit by digit", "digits") for label, _ in rows]
    return draw(HeatMap("the share that is right", labels, [names[at] for at in shown], means))


def _cells(by_way: Mapping[str, Any], key: str) -> list[Cell]:
    shown = [_cell(by_way[PROMPTED], key, arm) for arm in (SHOWN_ONCE, SHOWN_STEPS)]
    tuned = [_cell(by_way[way], key, *ARMS[way]) for way in (ONCE, TOKENS, STEPS)]
    return [*shown, _gain(*shown), *tuned, _gain(*tuned[1:])]


def _cell(outcome: Mapping[str, Any], key: str, arm: str) -> Cell:
    values = tuple(outcome[key].get(arm, ()))
    return Cell(values, text="" if values else outcome["refused"].get(arm, "") or "none", bounds=(0.0, 1.0))


def _gain(once: Cell, steps: Cell) -> Cell:
    pairs = zip(steps.values, once.values, strict=False)
    return Cell(tuple(one - other for one, other in pairs), bounds=(-1.0, 1.0))


def _notes(settings: Settings, found: Found) -> list[str]:
    count = settings["rows"]
    learned = "; ".join(
        f"{name} {_updates(found, name, ONCE)} updates at once, {_updates(found, name, TOKENS)} for as many tokens and "
        f"{_updates(found, name, STEPS)} with steps"
        for name in settings["cases"]
    )
    rates = f"the best of {settings['trials']} rates, and of up to three past their ends, and "
    rates = rates if settings["trials"] > 1 else "at one rate, "
    return [
        f"Model: {settings['parameters']:,} parameters. The answer behind {LEAD!r} is right, of {count['test']} "
        f"questions. {intervals_over(settings['seeds'], 'seed', 'seeds of demonstrations or of training')}",
        f"Tuned: LoRA, {learned}, of {settings['batch_size']} questions each, hardly one of them twice, in "
        f"{settings['precision']}; {rates}the best of the looks at every fifth of the updates, by the answers to "
        f"{count['dev']} others. Gain: steps less at once, tuned ones less at once with as many tokens, seed by seed.",
        *_unread(found),
        *_at_an_edge(found),
    ]


def _updates(found: Found, name: str, way: str) -> int:
    return next(int(out["updates"]) for unit, out in found if (unit["procedure"], unit["way"]) == (name, way))


def _unread(found: Found) -> list[str]:
    """Where no answer could be read, which counts as wrong."""
    shares = [
        f"{unit['procedure']}, {arm}: {fmean(values):.0%}"
        for unit, outcome in found
        for arm, values in outcome["unread"].items()
        if any(values)
    ]
    return [f"No answer could be read, which counts as wrong: {'; '.join(shares)}."] if shares else []


def _at_an_edge(found: Found) -> list[str]:
    """Which tuned arms chose an end of the rates that were tried."""
    said = []
    for which in ("largest", "smallest"):
        at = [
            f"{unit['procedure']}, {unit['way']}"
            for unit, outcome in found
            for arm, rate in outcome["rates"].items()
            if edges.edge([tried for tried, _ in outcome["trials"][arm]], rate) == which
        ]
        if at:
            said.append(f"The {which} rate tried was chosen for {'; '.join(at)}.")
    return said
