"""What every arm wrote, row by row: the part of the page that only tasks with written answers have."""

from __future__ import annotations

from typing import Any

from tunescope.data.scores import scale
from tunescope.report import text

Json = dict[str, Any]


def outputs(examples: Json | None, task: Json, groups: dict[str, str]) -> Json | None:
    """The rows in results.json, ready for the template; None where there are none.

    groups: an arm's name, as results.json has it, to its group.
    """
    if not examples or not examples.get("rows"):
        return None
    names = [str(name) for name in (task.get("metric"), *(task.get("also") or [])) if name]
    arms = [str(name) for name in examples["arms"]]
    shown, whole = len(examples["rows"]), int(examples.get("of") or 0)
    seeds = [(name, seed) for name, seed in zip(arms, examples["seeds"], strict=True) if seed]
    return {
        "metrics": names,
        "rows": [_row(one, arms, names, groups) for one in examples["rows"]],
        "part": f"All {whole:,} test rows." if shown == whole else f"{shown:,} of {whole:,} test rows, spread evenly.",
        "seeds": ", ".join(f"{text.short(name)} at seed {seed}" for name, seed in seeds),
    }


def _row(one: Json, arms: list[str], names: list[str], groups: dict[str, str]) -> Json:
    return {
        "row": one.get("row"),
        "input": one.get("input") or "",
        "references": one.get("references") or [],
        "outputs": [
            {
                "arm": arm,
                "group": groups.get(arm, "none"),
                "text": text_of or "",
                "scores": [_score(scores, name) for name in names],
            }
            for arm, text_of, scores in zip(arms, one["outputs"], one["scores"], strict=True)
        ],
    }


def _score(scores: Json, name: str) -> Json:
    value = scores.get(name)
    return {"value": "" if value is None else value, "shown": text.score(value, scale(name))}
