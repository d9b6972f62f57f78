"""Prompts carried to another model by their text alone, as Wen et al. (2023, table 1) do; other tokenizers too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tunescope import stats
from tunescope.comparing.bench import Bench, open_bench
from tunescope.comparing.plan import Plan, model_name
from tunescope.comparing.results import LEVEL
from tunescope.errors import UserError
from tunescope.searching.objective import check_answers
from tunescope.searching.search import Found, Say
from tunescope.searching.trying import stats_of, with_found

Json = dict[str, Any]
REFUSED: Json = {"score": None, "interval": None, "gain": None, "gain_interval": None}


def carried(plan: Plan, target: str, found: Sequence[Json], say: Say) -> Json:
    """The prompts' test scores on the target model, and its score without one; refused with the reason.

    found: the searches as `study` writes them; template and label words go with the prompt.
    """
    name = model_name(target)
    try:
        bench = open_bench(replace(plan, model=target))
        check_answers(bench)
        bare = stats_of(bench, "")
    except UserError as problem:
        say(f"{name} is refused: {problem}")
        return {"model": name, "status": "refused", "reason": str(problem), "zero_shot": REFUSED, "searches": []}
    cells = [_cell(bench, name, one, bare, say) for one in found if one["status"] == "done"]
    whole = stats.interval({0: bare}, stats.scorer(bench.task.metric), level=LEVEL)
    zero_shot = {"score": whole.value, "interval": [whole.low, whole.high]}
    return {"model": name, "status": "done", "reason": "", "zero_shot": zero_shot, "searches": cells}


def _cell(bench: Bench, name: str, one: Json, bare: Any, say: Say) -> Json:
    """All prompts of one search on the target; one that cannot be read refuses the cell, for the seeds go together."""
    runs: list[Json] = []
    for run in one["runs"]:
        try:
            own = with_found(bench, _again(run["found"]))
            runs.append({"seed": run["seed"], "stats": stats_of(own, run["found"]["text"])})
        except UserError as problem:
            reason = f"seed {run['seed']}: {problem}"
            say(f"{name}, prompt of {one['name']}, is refused: {reason}")
            return {"name": one["name"], "status": "refused", "reason": reason, **REFUSED, "runs": []}
    score, by_seed = stats.scorer(bench.task.metric), stats.by_seed(runs)
    found = stats.interval(by_seed, score, level=LEVEL)
    gap = stats.paired(by_seed, dict.fromkeys(by_seed, bare), score, level=LEVEL)
    return {
        "name": one["name"],
        "status": "done",
        "reason": "",
        "score": found.value,
        "interval": [found.low, found.high],
        "gain": gap.value,
        "gain_interval": [gap.low, gap.high],
        "runs": runs,
    }


def _again(found: Mapping[str, Any]) -> Found:
    return Found(found["text"], found["template"], found["words"], found["dev"], found["passes"])
