"""One line of a table on a corpus: a comparison of its arm, kept in a folder of its own, and what it comes to.

A decoder or an encoder-decoder writes its answers, an encoder chooses among labels by a new head. A line has what every
comparison has: rates tried for each arm alike, the same seeds, the development rows for the choice, the test rows for
the chosen runs alone; it resumes, and its folder holds its page and its artifact.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.data import scores
from tunescope.data.scores import aggregate, statistics
from tunescope.report.cells import Cell, Table
from tunescope.report.verdict import edges
from tunescope.reproduce import published
from tunescope.reproduce.corpus_table import LOADING, parts
from tunescope.reproduce.recipe import Found, Settings
from tunescope.system import files, run_folder, sealed_json
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.trial.train.settings import Settings as Training

Parts = Mapping[str, Sequence[Mapping[str, Any]]]
ILLEGAL = "no label"
PARTS = {"train", "dev", "test"}
TRIAL = ("learning_rate", "learning_rates", "dev", "status")
REFUSED: dict[str, Any] = {
    "status": "refused",
    "learning_rate": None,
    "told": [],
    "trials": [],
    "runs": [],
    "parameters": {"trained": 0, "stored": 0, "live": 0},
}


def worlds(settings: Settings) -> list[Any]:
    """None: the model is given."""
    return []


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The line's arm on all of the data; what came of it by metric, a test score a seed.

    Where labels are written, the share of the answers that are none of the training rows', too.
    """
    given = parts(settings)
    arm = compared(settings, unit, folder, given)
    found = outcome(arm, settings["metrics"], folder)
    if settings["choose"] or arm["status"] != "done" or "label" not in given["train"][0]:
        return found
    labels = sorted({str(row["target"]) for row in given["train"]})
    return found | {ILLEGAL: [_illegal(run, labels, settings, folder) for run in arm["runs"]]}


def compared(settings: Settings, unit: dict[str, Any], folder: Path, given: Parts) -> Mapping[str, Any]:
    """The line's arm compared over its rates and seeds, as results.json has it."""
    from tunescope.comparison.comparison import compare
    from tunescope.comparison.entry import AllRefused

    course = settings["course"]
    budget = None if unit["share"] is None else round(unit["share"] * settings["parameters"])
    try:
        done = compare(
            settings["model"],
            written(given, folder / "data"),
            arms=[published.begun(unit["arm"])],
            budget=budget,
            task=_task(settings, unit["template"]),
            seeds=settings["seeds"],
            trials=course["trials"],
            beyond=course["beyond"],
            learning_rates=_rates(course, unit["arm"]),
            settings=training(course, len(given["train"])),
            dev_share=published.dev_share(settings["protocol"]),
            **{name: settings[name] for name in LOADING if name in settings},
            out=folder / "run",
        )
    except AllRefused as problem:
        return REFUSED | {"reason": problem.reason}
    arm: dict[str, Any] = done.results["arms"][0]
    read = [note for rows in given.values() for note in getattr(rows, "notes", ())]
    own = [f"{unit['arm']}: {one}" if one.startswith("inputs cut") else one for one in arm["remarks"]]
    told = [*read, *done.results["data"]["notes"], *own]
    return arm | {"told": [*told, _commonest(given["test"])] if settings["choose"] else told}


def _commonest(rows: Sequence[Mapping[str, Any]]) -> str:
    """What one answer to all rows gets."""
    label, count = Counter(str(row["target"]) for row in rows).most_common(1)[0]
    return f"The commonest label, {label}, is that of {count / len(rows):.3f} of the test rows."


def _rates(course: Mapping[str, Any], arm: str) -> tuple[float, ...]:
    return (course["full"],) if course["full"] and arm == "full" else tuple(course["rates"])


def outcome(arm: Mapping[str, Any], metrics: Sequence[str], folder: Path) -> dict[str, Any]:
    """What a table needs of an arm: its sizes, the rate chosen, and a test score a seed by metric."""
    runs = arm["runs"] if arm["status"] == "done" else []
    return {
        "status": arm["status"],
        "reason": arm["reason"],
        "told": arm["told"],
        "rate": "+".join(f"{rate:g}" for rate in edges.rates(arm)),
        "trials": [{key: one[key] for key in TRIAL} for one in arm["trials"]],
        **arm["parameters"],
        "dev": [run["dev"] for run in runs],
        "scores": {metric: [_score(run, metric, folder) for run in runs] for metric in metrics if runs},
    }


def table(settings: Settings, found: Found) -> Table:
    """A line a row: parameters stored, then the metrics; where labels are written, what was none."""
    rows, writes_labels = [], any(ILLEGAL in outcome for _, outcome in found)
    for line, (_, outcome) in zip(settings["lines"], found, strict=True):
        cells = [Cell(text=f"{outcome['stored']:,}"), Cell(text=outcome["rate"])]
        for metric in settings["metrics"]:
            paper = line["paper"].get(metric, "")
            values = tuple(outcome["scores"].get(metric, ()))
            missing = Cell(text=(outcome["reason"] or "none") if metric == settings["metrics"][0] else "")
            cells.append(Cell(values, paper, digits=2, bounds=bounds(metric)) if values else missing)
        if writes_labels:
            cells.append(Cell(tuple(outcome.get(ILLEGAL, ())), digits=2, bounds=(0.0, 1.0)))
        rows.append((line["label"], cells))
    told = [f"{ILLEGAL.capitalize()}: the share of written answers that are no label of the training rows."]
    columns = ("parameters", "rate", *settings["metrics"], *([ILLEGAL] if writes_labels else []))
    return Table(columns, rows, [*notes(settings, found), *(told if writes_labels else [])])


def bounds(metric: str) -> tuple[float, float]:
    """What a score can be."""
    return 0.0, scores.scale(metric) if scores.is_bounded(metric) else math.inf


def notes(settings: Settings, found: Found = ()) -> list[str]:
    """What a reader should know of how the numbers came about, and what was told of rows and runs while they did."""
    course, rows = settings["course"], settings["rows"]
    some = " and ".join(f"{most:,} {'rows' if part == 'train' else 'inputs'} of {part}" for part, most in rows.items())
    count = len(course["rates"]) or course["trials"]
    apart = ", or of one of its methods alone" if any("+" in outcome.get("rate", "") for _, outcome in found) else ""
    past = f" and up to {course['beyond']} past an end of these that won{apart}" if course.get("beyond") else ""
    many = f"{count} rates a line{past}, chosen on development rows at the first seed"
    has_full = any(line.get("arm") == "full" for line in settings["lines"])
    own = f" ({course['full']:g} of full tuning)" if course["full"] and has_full else ""
    one = f"the rate {course['rates'][0]:g}{own}" if course["rates"] else "one rate of each method"
    rates = many if count > 1 else one
    seeds = f"{settings['seeds']} seed{'s, the intervals are over them' if settings['seeds'] > 1 else ''}"
    written = "greedy decoding" if course["beams"] == 1 else f"beam search of {course['beams']}"
    answers = "answers chosen among the labels" if settings["choose"] else written
    composed = [outcome.get("rate", "") for unit, outcome in found if "+" in unit.get("arm", "")]
    walked = "The rate of a composition is its first method's; the others walk their own grids beside it."
    return [
        f"Model: {settings['parameters']:,} parameters. {_long(course)} of {course['batch_size']} in "
        f"{course['precision']}, {rates}; {seeds}. {f'At most {some}' if some else 'All rows'}.",
        *_published_elsewhere(settings),
        f"The objective is the mean over a batch's target tokens for every method{_added(course)}; {answers}.",
        *([walked] if any(rate and "+" not in rate for rate in composed) and not course["rates"] else []),
        *_prefixes(settings),
        *at_an_edge(settings, found),
        *(f"Not scored: {reason}" for reason in settings.get("not_scored", ())),
        *dict.fromkeys(note for _, outcome in found for note in outcome.get("told", ())),
    ]


def _prefixes(settings: Settings) -> list[str]:
    """How prefixes come about where no network makes them, as it does in the papers."""
    items = [item for line in settings["lines"] for item in line.get("arm", "").split("+")]
    if settings["course"]["network"] or not any(item.partition(":")[0] == "prefix" for item in items):
        return []
    return [
        "Prefixes are trained directly, and begin as noise where no start is named; the papers' are made by a network."
    ]


def at_an_edge(settings: Settings, found: Found) -> list[str]:
    """Which lines chose the largest or the smallest rate that was tried: one beyond it might have done better."""
    notes = []
    for which in ("largest", "smallest"):
        at = [index for index, (_, outcome) in enumerate(found) if which in _edges(outcome)]
        several = sum(len(outcome.get("trials", ())) > 1 for _, outcome in found)
        if at:
            notes.append(f"The {which} rate tried was chosen {_of(settings, found, at, several)}.")
    return notes


def _edges(outcome: Mapping[str, Any]) -> set[str]:
    tried = [[float(f"{rate:g}") for rate in edges.rates(one)] for one in outcome.get("trials", ())]
    chosen = [float(rate) for rate in outcome["rate"].split("+")] if outcome.get("rate") else []
    return edges.every_edge(tried, chosen)


def _of(settings: Settings, found: Found, at: Sequence[int], several: int) -> str:
    if len(at) == several:
        return "for every line"
    lines = settings["lines"]
    if len(lines) != len(found):
        return f"for {len(at)} of {several} lines"
    parts = dict[str, list[str]]()
    for index in at:
        parts.setdefault(lines[index]["label"], []).append(lines[index].get("part") or "")
    named = [label + (f" ({', '.join(sizes)})" if any(sizes) else "") for label, sizes in parts.items()]
    return f"for {len(at)} of {several} lines: {'; '.join(named)}"


def _published_elsewhere(settings: Settings) -> list[str]:
    corpus, of = settings.get("data", "").partition(":")[0], settings["course"].get("of", "")
    if settings.get("protocol") != "paper" or not of or corpus == of:
        return []
    return [f"Of {corpus} nothing published is known here: steps, batches, rates and beams are those of {of}."]


def _added(course: Mapping[str, Any]) -> str:
    """What is added to the cross-entropy, in words."""
    smoothed = f", labels smoothed by {course['label_smoothing']:g}" if course["label_smoothing"] else ""
    return smoothed + (f", with a z-loss of {course['z_loss']:g}" if course["z_loss"] else "")


def _long(course: Mapping[str, Any]) -> str:
    return f"{course['steps']:,} steps" if course["epochs"] is None else f"{course['epochs']} epochs in batches"


def _task(settings: Settings, template: str) -> Any:
    if settings["choose"]:
        by = "head" if settings["kind"] == "encoder" else "words"
        return Classification(text="input", label="target", template=template, by=by)
    metric, *also = settings["metrics"]
    course = settings["course"]
    return Generation(
        metric=metric,
        also=tuple(also),
        lowercase=settings["lowercase"],
        beams=course["beams"],
        no_repeat_ngram=course["no_repeat_ngram"],
        label_smoothing=course["label_smoothing"],
        z_loss=course["z_loss"],
        **settings["languages"],
        **settings["lengths"],
    )


def training(course: Mapping[str, Any], rows: int) -> Training:
    """How a line is trained on so many rows; it is scored five times."""
    steps = course["steps"] if course["epochs"] is None else math.ceil(course["epochs"] * rows / course["batch_size"])
    return Training(
        steps=steps,
        batch_size=course["batch_size"],
        accumulate=course["accumulate"],
        optimizer=course["optimizer"],
        schedule=course["schedule"],
        weight_decay=course["weight_decay"],
        clip=course["clip"],
        warmup=course["warmup"],
        precision=course["precision"],
        eval_every=max(1, steps // 5),
        patience=course["patience"],
    )


def written(given: Parts, folder: Path) -> dict[str, str]:
    """The rows as files, which a comparison can be resumed from; parts that there are none of it cuts itself."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for part in PARTS & given.keys():
        path = folder / f"{part}.jsonl"
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in given[part])
        files.put(path, "".join(f"{line}\n" for line in lines).encode())
        found[part] = str(path)
    return found


def _score(run: Mapping[str, Any], metric: str, folder: Path) -> float:
    if metric in run["test"]:
        return float(run["test"][metric])
    return float(aggregate(metric, tested(run, folder)["also"][metric])[metric])


def _illegal(run: Mapping[str, Any], labels: Sequence[str], settings: Settings, folder: Path) -> float:
    """The share of a run's written answers that match none of the labels."""
    answers = tested(run, folder)["outputs"]
    legal = statistics("exact_match", answers, [labels] * len(answers), lowercase=settings["lowercase"])
    return 1 - sum(one for (one,) in legal) / len(legal)


def tested(run: Mapping[str, Any], folder: Path) -> Any:
    """What a run's folder keeps of its test rows."""
    place = folder / "run"
    return sealed_json.read(run_folder.folder(place, run["id"]) / "test.json", may_lack=run_folder.is_unsealed(place))
