"""What is true of a lab world: how far contexts and LoRA come in long runs, at a seed that no pilot has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.comparison import comparison
from tunescope.trial.plan import Plan

SEED = 11
STEPS = 1.6  # times those of the comparison's runs
CONTEXTS = (
    ("prefix:length=20,init_from=demos", (0.003, 0.02, 0.1, 0.5)),
    ("prefix:length=20,init_from=noise", (0.01, 0.05, 0.2, 1.0)),
    ("prefix:length=40,init_from=noise", (0.01, 0.05, 0.2, 1.0)),
)
DELTA = ("lora", (0.001, 0.003, 0.01, 0.03))
ENOUGH = 0.97  # of whole answers: a context that comes so far suffices, whatever else does


def long_run(question: Plan, folder: Path) -> list[dict[str, Any]]:
    """[{"arm", "group", "learning_rate", "dev", "score"}]: contexts until one is good enough; else all, and LoRA.

    Of every arm four learning rates race, up to 1.0 for contexts, and the one that is left is run to its end.
    """
    found = []
    for arm, rates in CONTEXTS:
        found.append(_ran(question, arm, rates, folder) | {"group": "context"})
        if found[-1]["score"] >= ENOUGH:
            return found
    return [*found, _ran(question, *DELTA, folder) | {"group": "delta"}]


def _ran(question: Plan, arm: str, rates: tuple[float, ...], folder: Path) -> dict[str, Any]:
    steps = round(STEPS * question.settings.steps)
    settings = replace(question.settings, steps=steps, eval_every=steps // 9, patience=9)
    changes: dict[str, Any] = {"arms": (arm,), "rates": rates, "seeds": (SEED,), "max_seeds": None}
    asked = replace(question, **changes, beyond=0, halving=True, settings=settings)
    results: Mapping[str, Any] = comparison.ask(asked, folder / arm.replace(":", "-"), quiet=True).results
    one = results["arms"][0]
    if one["status"] != "done":
        return {"arm": arm, "learning_rate": None, "dev": None, "score": 0.0}
    return {"arm": arm, "learning_rate": one["learning_rate"], "dev": one["runs"][0]["dev"], "score": one["score"]}
