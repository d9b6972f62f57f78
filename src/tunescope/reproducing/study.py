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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tunescope import files, store
from tunescope.errors import UserError
from tunescope.reproducing.given import model_settings
from tunescope.reproducing.recipe import Ask, Cell, Found, Settings, Table
from tunescope.train import Settings as Training

Parts = Mapping[str, Sequence[Mapping[str, Any]]]
WRITERS = ("decoder", "encoder-decoder")
PARTS = {"train", "dev", "test"}
ALL = (*WRITERS, "encoder")
REFUSED: dict[str, Any] = {
    "status": "refused",
    "learning_rate": None,
    "trials": [],
    "runs": [],
    "parameters": {"trained": 0, "stored": 0, "live": 0},
}
OF_UNIT = ("arm", "share", "part", "template")
OF_MODEL = ("model", "kind", "weights", "parameters")


@dataclass(frozen=True)
class Line:
    """A row of the table.

    share: of the model's parameters, which the arm's size is set to; None leaves it as typed.
    part: which variation of the data, for recipes that have several.
    template: of the task, where labels are chosen.
    paper: the paper's words by metric.
    """

    label: str
    arm: str
    share: float | None = None
    part: str = ""
    template: str = "{input}"
    paper: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Course:
    """How every line is trained and scored; rates () means each method's own grid, of which `trials` are tried.

    epochs: times over the training rows, instead of steps.
    network: the width of the network that makes a prefix which begins as noise; None trains it directly.
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
    network: int | None = None


TABLE_TO_TEXT = Course(  # Li and Liang 2021, section 5.3: E2E
    steps=0,
    epochs=5,
    batch_size=10,
    rates=(8e-5,),
    warmup=0.0,
    patience=1000,
    beams=5,
    network=512,
)
FEW = Course(  # the same, section 6.3: few examples
    steps=400,
    batch_size=10,
    rates=(5e-5,),
    warmup=0.25,
    patience=1000,
    beams=5,
    network=512,
)
PROMPT_TUNING = Course(  # Lester et al. 2021, section 3.2
    steps=30_000,
    batch_size=32,
    rates=(0.3,),
    schedule="constant",
    warmup=0.0,
    patience=1000,
    optimizer="adafactor",
)

SUMMARIES = Course(  # He et al. 2022, appendix A: XSum; their label smoothing of .1 is left out, for all lines alike
    steps=100_000,
    batch_size=64,
    rates=(5e-5,),
    warmup=0.0,
    patience=1000,
    beams=6,
    network=800,
)


def course(ask: Ask, paper: Course | None = None) -> Course:
    """That of the protocol asked for; `paper` is what was published."""
    if ask.protocol == "paper" and paper is not None:
        return paper
    return Course(steps=20, batch_size=8, trials=1) if ask.quick else Course(steps=600, batch_size=16)


def rows(ask: Ask) -> dict[str, int]:
    """The most inputs of each part, so that a line takes minutes; published sizes take all."""
    if ask.protocol == "paper":
        return {}
    return {"train": 200, "dev": 10, "test": 20} if ask.quick else {"train": 10_000, "dev": 100}


def kept(ask: Ask, lines: Sequence[Line], network: int | None) -> list[dict[str, Any]]:
    """As settings hold them; the quick size has the first two."""
    some = lines[:2] if ask.quick else lines
    return [asdict(replace(line, arm=_by_network(line.arm, network))) for line in some]


def _by_network(arm: str, width: int | None) -> str:
    """A prefix in front of an arm, made by a network of that width."""
    prefix, plus, rest = arm.partition("+")
    if width is None or not prefix.startswith("prefix") or "init_from" in prefix:
        return arm
    return f"{prefix}{',' if ':' in prefix else ':'}mlp={width}{plus}{rest}"


def settings(
    ask: Ask,
    lines: Sequence[Line],
    course: Course,
    rows: Mapping[str, int],
    kinds: Sequence[str] = WRITERS,
    *,
    choose: bool = False,
) -> Settings:
    """What a recipe on --model and --data keeps.

    kinds: of model that the recipe is about.
    choose: answers are chosen among the labels, which an encoder always does; else they are written.
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
    choose = choose or model["kind"] == "encoder"
    return {
        "protocol": ask.protocol,
        "seeds": ask.seeds or (1 if ask.quick else 3),
        "data": ask.data,
        "sha256": {part: digest(one) for part, one in specs.items() if one is not None},
        "rows": dict(rows),
        "lines": kept(ask, lines, course.network),
        "choose": choose,
        "metrics": ["accuracy"] if choose else _metrics(spec.name),
        "course": asdict(course),
        **model,
    }


def size(settings: Settings, arm: str, share: float) -> int:
    """The rank, length or bottleneck at which the arm stores that share of the model's parameters, at most."""
    from tunescope.budget import solve
    from tunescope.comparing.bench import load_model
    from tunescope.registry import explicit, parse

    model = load_model(settings["model"])[0]
    (spec,), _ = solve(model, parse(arm), round(share * settings["parameters"]), explicit(arm))
    return int(getattr(spec, str(spec.size)))


def worlds(settings: Settings) -> list[Any]:
    """None: the model is given."""
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    """One a line; what is only shown of it is left out, so that a label may change."""
    return [{key: line[key] for key in OF_UNIT} for line in settings["lines"]]


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
    from tunescope.comparing.protocol import AllRefused

    course = settings["course"]
    budget = None if unit["share"] is None else round(unit["share"] * settings["parameters"])
    try:
        done = compare(
            settings["model"],
            _written(given, folder / "data"),
            arms=[unit["arm"]],
            budget=budget,
            task=_task(settings, unit["template"]),
            seeds=settings["seeds"],
            trials=course["trials"],
            learning_rates=course["rates"],
            settings=_training(course, len(given["train"])),
            out=folder / "run",
            quiet=True,
        )
    except AllRefused as problem:
        return REFUSED | {"reason": problem.reason}
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


def no_labels(name: str, count: int, most: int) -> UserError:
    return UserError(f"{name}: the targets are {count} different texts, no labels; it takes at most {most}.")


def notes(settings: Settings) -> list[str]:
    """What a reader should know of how the numbers came about."""
    course, rows = settings["course"], settings["rows"]
    some = ", ".join(f"{part} {most:,}" for part, most in rows.items()) or "all"
    count = len(course["rates"]) or course["trials"]
    many = f"{count} rates a line, chosen on development rows at the first seed"
    rates = many if count > 1 else f"the rate {course['rates'][0]:g}" if course["rates"] else "one rate of each method"
    seeds = f"{settings['seeds']} seed{'s, the intervals are over them' if settings['seeds'] > 1 else ''}"
    written = "greedy decoding" if course["beams"] == 1 else f"beam search of {course['beams']}"
    answers = "answers chosen among the labels" if settings["choose"] else written
    return [
        f"Model: {settings['parameters']:,} parameters. {_long(course)} of {course['batch_size']}, {rates}; {seeds}. "
        f"Most inputs of a part: {some}.",
        f"The objective is the mean over a batch's target tokens for every method; {answers}.",
    ]


def _long(course: Mapping[str, Any]) -> str:
    return f"{course['steps']:,} steps" if course["epochs"] is None else f"{course['epochs']} epochs in batches"


def _task(settings: Settings, template: str) -> Any:
    from tunescope import tasks

    if settings["choose"]:
        by = "head" if settings["kind"] == "encoder" else "words"
        return tasks.Classification(text="input", label="target", template=template, by=by)
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
    """The rows as files, which a comparison can be resumed from; parts that there are none of it cuts itself."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for part in PARTS & given.keys():
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


def _metrics(corpus: str) -> list[str]:
    """Those of the corpus that can run here; of one with labels, exact matches."""
    module = importlib.import_module(f"tunescope.corpora.{corpus}")
    return [name for name in getattr(module, "METRICS", ("exact_match",)) if _runs(name)]


def _runs(metric: str) -> bool:
    from tunescope.metrics import find

    try:
        find(metric).needs()
    except UserError:
        return False
    return True
