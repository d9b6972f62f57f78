"""Prompts carried to another model by their text alone, as Wen et al. (2023, table 1) do; other tokenizers too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.report.verdict import stats
from tunescope.report.verdict.stats import LEVEL
from tunescope.search.apply import Stats, stats_of, with_found
from tunescope.search.objective import check_answers
from tunescope.search.search import Found, Say
from tunescope.search.without_words import open_unworded
from tunescope.tasks.task import Task
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.provenance import inputs_of

Json = dict[str, Any]
REFUSED: Json = {"score": None, "interval": None, "gain": None, "gain_interval": None}


@dataclass(frozen=True)
class Source:
    """What the searches had. task: as their model reads it. stands_in: its label words say nothing of the labels."""

    task: Task
    stands_in: bool = False


def carried(plan: Plan, target: str, found: Sequence[Json], source: Source, say: Say) -> Json:
    """The prompts' test scores on the target model, and its score without one; refused with the reason.

    found: the searches as `study` writes them; the template and the label words go with the prompt where the search
    found them, and are else the target's own, which may read {mask} otherwise.
    """
    name = model_name(target)
    try:
        here = replace(plan, model=target)
        bench = open_unworded(here)[0] if source.stands_in else open_bench(here)
        check_answers(bench)
        bare = None if source.stands_in else stats_of(bench, "")
    except UserError as problem:
        say(f"{name} is refused: {problem}")
        return {"model": name, "status": "refused", "reason": str(problem), "zero_shot": REFUSED, "searches": []}
    cells = [_cell(bench, name, one, bare, source, say) for one in found if one["status"] == "done"]
    if bare is None:
        return {"model": name, "status": "done", "reason": "", "zero_shot": REFUSED, "searches": cells}
    inputs = inputs_of(bench, "test")
    whole = stats.interval({0: bare}, stats.scorer(bench.task.metric), level=LEVEL, inputs=inputs)
    zero_shot = {"score": whole.value, "interval": [whole.low, whole.high]}
    return {"model": name, "status": "done", "reason": "", "zero_shot": zero_shot, "searches": cells}


def _cell(bench: Bench, name: str, one: Json, bare: Stats | None, source: Source, say: Say) -> Json:
    """All prompts of one search on the target; one that cannot be read refuses the cell, for the seeds go together."""
    runs: list[Json] = []
    for run in one["runs"]:
        try:
            own = with_found(bench, _again(run["found"], source, bench))
            runs.append({"seed": run["seed"], "stats": stats_of(own, run["found"]["text"])})
        except UserError as problem:
            reason = f"seed {run['seed']}: {problem}"
            say(f"{name}, prompt of {one['name']}, is refused: {reason}")
            return {"name": one["name"], "status": "refused", "reason": reason, **REFUSED, "runs": []}
    score, by_seed = stats.scorer(bench.task.metric), stats.by_seed(runs)
    inputs = inputs_of(bench, "test")
    found = stats.interval(by_seed, score, level=LEVEL, inputs=inputs)
    cell = {"name": one["name"], "status": "done", "reason": "", "score": found.value, "runs": runs}
    cell |= {"interval": [found.low, found.high], "gain": None, "gain_interval": None}
    if bare is None:
        return cell
    gap = stats.paired(by_seed, dict.fromkeys(by_seed, bare), score, level=LEVEL, inputs=inputs)
    return cell | {"gain": gap.value, "gain_interval": [gap.low, gap.high]}


def _again(found: Mapping[str, Any], source: Source, bench: Bench) -> Found:
    """As it was found; what the search left as it was is as the target's task has it."""
    own = {}
    for name in ("template", "words"):
        is_found = (source.stands_in and name == "words") or found[name] != getattr(source.task, name, found[name])
        own[name] = found[name] if is_found else getattr(bench.task, name, found[name])
    return Found(found["text"], own["template"], own["words"], found["dev"], found["passes"])
