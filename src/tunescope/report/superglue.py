"""SuperGLUE's score: the mean over its eight tasks, of what was compared on all eight (Wang et al. 2019, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from tunescope.report import text
from tunescope.report.cells import Cell

Json = Mapping[str, Any]
RIGHT = ("accuracy", "exact_match")
TASKS: dict[str, tuple[tuple[str, ...], ...]] = {  # the metrics that count alike, each by what it is called here
    "boolq": (RIGHT,),
    "cb": (RIGHT, ("macro_f1", "f1_cb")),
    "copa": (RIGHT,),
    "multirc": (("f1_true",),),
    "record": (("squad_f1",), ("squad_em",)),
    "rte": (RIGHT,),
    "wic": (RIGHT,),
    "wsc": (RIGHT,),
}
SAYS = (
    "The mean over the eight tasks, of which CB counts by the mean of accuracy and F1, and ReCoRD by that of F1 and "
    "exact match. MultiRC counts by its F1 alone; in published scores it counts by the mean of that and the share of "
    "questions whose answers are all right, which is lower, so this is no published score and a little above one. "
    "Its interval is over seeds alone: how far the test rows leave it open is not in it."
)


def task_of(results: Json) -> str:
    """The task whose published test part, SuperGLUE's val.jsonl, a comparison was scored on; "" for all else."""
    task, _, place = str(((results.get("data") or {}).get("test") or {}).get("path") or "").partition(":")
    return task if task in TASKS and (place.endswith("#test") or place.startswith("val")) else ""


def scores(results: Json) -> dict[str, Any]:
    """Of each finished arm a score a seed, or what it was not scored by; {} of what is no task of SuperGLUE."""
    task = task_of(results)
    if not task:
        return {}
    done = [arm for arm in results["arms"] if arm.get("status") == "done" and arm.get("runs")]
    return {
        "task": task,
        "model": results.get("model") or {},
        "arms": {arm["name"]: _arm(results, task, arm) for arm in done},
    }


def _arm(results: Json, task: str, arm: Json) -> dict[str, Any]:
    found: dict[int, float] = {}
    for run in arm["runs"]:
        told = _told(results, run)
        each = [next((told[name] for name in names if name in told), None) for names in TASKS[task]]
        known = [float(one) for one in each if one is not None]
        if len(known) < len(each):
            lacks = [" or ".join(names) for names, one in zip(TASKS[task], each, strict=True) if one is None]
            return {"seeds": {}, "lacks": f"{task} was not scored by {' and '.join(lacks)}"}
        found[int(run["seed"])] = fmean(known)
    return {"seeds": found, "lacks": ""}


def _told(results: Json, run: Json) -> Json:
    """A run's test scores by metric; where labels were chosen, the F1 of True too."""
    task = results.get("task") or {}
    labels = list(task.get("labels") or ())
    if task.get("kind") != "classification" or "True" not in labels:
        return dict(run["test"])
    _, meant, said = (np.asarray(run["stats"]) == labels.index("True")).T
    return dict(run["test"]) | {"f1_true": 2 * float((said & meant).sum()) / max(int(said.sum() + meant.sum()), 1)}


def means(found: Sequence[Json]) -> list[dict[str, Any]]:
    """A row for every arm of a model that was compared on all eight tasks: its score on each and their mean, or why
    there is none. found: what `scores` gave of each comparison, with the `run` that it is of.
    """
    groups: dict[tuple[str, str, str], dict[str, list[tuple[str, Json]]]] = {}
    for one in found:
        for arm, own in one["arms"].items():
            which = (str(one["model"].get("name")), str(one["model"].get("fingerprint")), str(arm))
            groups.setdefault(which, {}).setdefault(one["task"], []).append((one["run"], own))
    return [
        {"model": text.short(str(text.clean(model)), 80), "arm": text.short(str(text.clean(arm)), 80), **_row(by_task)}
        for (model, _, arm), by_task in groups.items()
        if by_task.keys() == TASKS.keys()
    ]


def _row(by_task: Mapping[str, Sequence[tuple[str, Json]]]) -> dict[str, Any]:
    each = {task: by_task[task] for task in TASKS}
    twice = [f"{task} is there twice ({', '.join(run for run, _ in own)})" for task, own in each.items() if own[1:]]
    lacks = [own["lacks"] for runs in each.values() for _, own in runs if own["lacks"]]
    seeds = sorted(set.intersection(*(set(own["seeds"]) for runs in each.values() for _, own in runs[:1])))
    none = twice or lacks or ([] if seeds else ["the tasks have no seed in common"])
    if none:
        return {"why": "; ".join(none), "tasks": [], "score": None, "shown": "", "span": ""}
    columns = {task: [runs[0][1]["seeds"][seed] for seed in seeds] for task, runs in each.items()}
    cell = Cell(tuple(map(fmean, zip(*columns.values(), strict=True))), bounds=(0.0, 1.0))
    span = f" ({text.span(list(cell.interval))})" if cell.interval else ""
    shown = [(task, text.score(fmean(values))) for task, values in columns.items()]
    return {"why": "", "tasks": shown, "score": cell.mean, "shown": text.score(cell.mean), "span": span}


def lines(rows: Sequence[Json]) -> list[str]:
    """For the terminal: a line a row, and what the mean is."""
    told = [f"SuperGLUE, {one['arm']} ({one['model']}): {one['why'] or one['shown'] + one['span']}" for one in rows]
    return [*told, SAYS] if told else []
