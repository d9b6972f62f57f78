"""Ways to adapt a given model to a task: each line of a table is a comparison of one arm, kept in a folder of its own.

A decoder or an encoder-decoder writes its answers, an encoder chooses among labels by a new head. A line has what every
comparison has: rates tried for each arm alike, the same seeds, the development rows for the choice, the test rows for
the chosen runs alone; it resumes, and its folder holds its page and its artifact.
"""

import importlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tunescope import files, store
from tunescope.errors import UserError
from tunescope.reproducing.given import model_settings
from tunescope.reproducing.recipe import Ask, Cell, Found, Settings, Table
from tunescope.train import Settings as Training

Parts = Mapping[str, Sequence[Mapping[str, Any]]]
WRITERS = ("decoder", "encoder-decoder")
ALL = (*WRITERS, "encoder")


@dataclass(frozen=True)
class Line:
    """A row of the table.

    share: of the model's parameters, which the arm's size is set to; None leaves it as typed.
    part: which variation of the data, for recipes that have several.
    paper: the paper's words by metric.
    """

    label: str
    arm: str
    share: float | None = None
    part: str = ""
    paper: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Course:
    """How every line is trained and scored; rates () means each method's own grid, of which `trials` are tried.

    epochs: times over the training rows, instead of steps.
    """

    steps: int
    batch_size: int
    rates: tuple[float, ...] = ()
    trials: int = 3
    schedule: str = "linear"
    warmup: float = 0.06
    patience: int = 5
    epochs: int | None = None
    beams: int = 1
    optimizer: str = "adamw"


def course(ask: Ask, paper: Course | None = None) -> Course:
    """That of the protocol asked for; `paper` is what was published."""
    if ask.protocol == "paper" and paper is not None:
        return paper
    return Course(steps=20 if ask.quick else 600, batch_size=16)


def rows(ask: Ask) -> dict[str, int]:
    """The most inputs of each part, so that a line takes minutes; published sizes take all."""
    if ask.protocol == "paper":
        return {}
    return {"train": 200, "dev": 10, "test": 20} if ask.quick else {"train": 10_000, "dev": 100}


def kept(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """As settings hold them."""
    return [asdict(line) for line in lines]


def settings(
    ask: Ask, lines: Sequence[Line], course: Course, rows: Mapping[str, int], kinds: Sequence[str] = WRITERS
) -> Settings:
    """What a recipe on --model and --data keeps.

    kinds: of model that the recipe is about.
    rows: the most inputs of each part; training rows are counted singly, of dev and test the distinct inputs.

    Raises:
        UserError: no model or data given, or one that cannot be used.
    """
    from tunescope.gathering.parts import digest, expanded
    from tunescope.gathering.spec import parsed

    if ask.model is None or ask.data is None:
        raise UserError(f"{ask.name} needs --model MODEL and --data CORPUS:FOLDER, such as --data e2e:FOLDER.")
    spec = parsed(ask.data)
    if spec is None or spec.part or not spec.path.is_dir():
        raise UserError(f"{ask.name} --data {ask.data}: give the folder of a corpus, such as e2e:FOLDER.")
    specs = {part: parsed(text) for part, text in expanded({"train": ask.data}).items()}
    model = model_settings(ask.model, kinds, ask.name)
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "data": ask.data,
        "sha256": {part: digest(one) for part, one in specs.items() if one is not None},
        "rows": dict(rows),
        "lines": kept(lines),
        "metrics": list(_metrics(spec.name, model["kind"])),
        "course": asdict(course),
        **model,
    }


def worlds(settings: Settings) -> list[Any]:
    """None: the model is given."""
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    """One a line; what is only shown of it is left out, so that a label may change."""
    return [{key: line[key] for key in ("arm", "share", "part")} for line in settings["lines"]]


def parts(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The corpus's rows, no more of each part than settings["rows"] says, drawn once for all lines and seeds."""
    from tunescope.corpora import corpus

    found = corpus(settings["data"])
    return {part: reduced(rows, settings["rows"].get(part), part) for part, rows in found.items()}


def reduced(rows: Sequence[dict[str, Any]], most: int | None, part: str, seed: int = 0) -> list[dict[str, Any]]:
    """At most so many rows of train, or so many inputs of another part with all their references, in their order."""
    names = [str(index) if part == "train" else row["input"] for index, row in enumerate(rows)]
    distinct = list(dict.fromkeys(names))
    if most is None or len(distinct) <= most:
        return list(rows)
    kept = set(random.Random(seed).sample(distinct, most))
    return [row for name, row in zip(names, rows, strict=True) if name in kept]


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The line's arm on all of the data; what came of it by metric, a test score a seed."""
    return outcome(compared(settings, unit, folder, parts(settings)), settings["metrics"], folder)


def compared(settings: Settings, unit: dict[str, Any], folder: Path, given: Parts) -> Mapping[str, Any]:
    """The line's arm compared over its rates and seeds, as results.json has it."""
    from tunescope.comparing.comparison import compare

    course = settings["course"]
    budget = None if unit["share"] is None else round(unit["share"] * settings["parameters"])
    done = compare(
        settings["model"],
        _written(given, folder / "data"),
        arms=[unit["arm"]],
        budget=budget,
        task=_task(settings),
        seeds=settings["seeds"],
        trials=course["trials"],
        learning_rates=course["rates"],
        settings=_training(course, len(given["train"])),
        out=folder / "run",
        quiet=True,
    )
    arm: Mapping[str, Any] = done.results["arms"][0]
    return arm


def table(settings: Settings, found: Found) -> Table:
    """A line a row: parameters stored, then the metrics."""
    rows = []
    for line, (_, outcome) in zip(settings["lines"], found, strict=True):
        cells = [Cell(text=f"{outcome['stored']:,}"), Cell(text=outcome["rate"])]
        for metric in settings["metrics"]:
            paper = line["paper"].get(metric, "")
            values = tuple(outcome["scores"].get(metric, ()))
            cells.append(Cell(values, paper, digits=2) if values else Cell(text=outcome["reason"] or "none"))
        rows.append((line["label"], cells))
    return Table(("parameters", "rate", *settings["metrics"]), rows, notes(settings))


def too_few(wanted: int, has: int) -> UserError:
    return UserError(f"A subset of {wanted} training rows cannot be drawn from {has}. Give more data.")


def notes(settings: Settings) -> list[str]:
    """What a reader should know of how the numbers came about."""
    course, rows = settings["course"], settings["rows"]
    some = ", ".join(f"{part} {most:,}" for part, most in rows.items()) or "all"
    rates = (
        f"the rate {course['rates'][0]:g}"
        if len(course["rates"]) == 1
        else (f"{len(course['rates']) or course['trials']} rates a line, chosen on development rows at the first seed")
    )
    return [
        f"Model: {settings['parameters']:,} parameters. {_long(course)} of {course['batch_size']}, {rates}; "
        f"{settings['seeds']} seeds, the intervals are over them. Most inputs of a part: {some}.",
        "The objective is the mean over a batch's target tokens for every method. "
        + ("Greedy decoding." if course["beams"] == 1 else f"Beam search of {course['beams']}."),
    ]


def _long(course: Mapping[str, Any]) -> str:
    return f"{course['steps']:,} steps" if course["epochs"] is None else f"{course['epochs']} epochs in batches"


def _task(settings: Settings) -> Any:
    from tunescope import tasks

    if settings["kind"] == "encoder":
        return tasks.Classification(text="input", label="target", template="{input}", by="head")
    return tasks.Generation(
        metric=settings["metrics"][0], also=tuple(settings["metrics"][1:]), beams=settings["course"]["beams"]
    )


def _training(course: Mapping[str, Any], rows: int) -> Training:
    steps = course["steps"] if course["epochs"] is None else math.ceil(course["epochs"] * rows / course["batch_size"])
    return Training(
        steps=steps,
        batch_size=course["batch_size"],
        optimizer=course["optimizer"],
        schedule=course["schedule"],
        warmup=course["warmup"],
        eval_every=max(1, steps // 5),
        patience=course["patience"],
    )


def _written(given: Parts, folder: Path) -> dict[str, str]:
    """The rows as files, which a comparison can be resumed from."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for part in ("train", "dev", "test"):
        path = folder / f"{part}.jsonl"
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in given[part])
        files.put(path, "".join(f"{line}\n" for line in lines).encode())
        found[part] = str(path)
    return found


def outcome(arm: Mapping[str, Any], metrics: Sequence[str], folder: Path) -> dict[str, Any]:
    """What a table needs of an arm: its sizes, the rate chosen, and a test score a seed by metric."""
    runs = arm["runs"] if arm["status"] == "done" else []
    return {
        "status": arm["status"],
        "reason": arm["reason"],
        "rate": "" if arm["learning_rate"] is None else f"{arm['learning_rate']:g}",
        "trials": [{key: one[key] for key in ("learning_rate", "dev", "status")} for one in arm["trials"]],
        **arm["parameters"],
        "dev": [run["dev"] for run in runs],
        "scores": {metric: [_score(run, metric, folder) for run in runs] for metric in metrics if runs},
    }


def _score(run: Mapping[str, Any], metric: str, folder: Path) -> float:
    from tunescope.tasks.metrics import aggregate

    if metric in run["test"]:
        return float(run["test"][metric])
    told = files.read_json(store.folder(folder / "run", run["id"]) / "test.json")
    return float(aggregate(metric, told["also"][metric])[metric])


def _metrics(corpus: str, kind: str) -> tuple[str, ...]:
    """Those of the corpus that can run here: an encoder has accuracy, a corpus with labels exact matches."""
    if kind == "encoder":
        return ("accuracy",)
    module = importlib.import_module(f"tunescope.corpora.{corpus}")
    return tuple(name for name in getattr(module, "METRICS", ("exact_match",)) if _runs(name))


def _runs(metric: str) -> bool:
    from tunescope.metrics import find

    try:
        find(metric).needs()
    except UserError:
        return False
    return True
