"""How often the verdict of a pilot is that of the full comparison, on lab worlds whose truth a long run tells.

The comparison is the usual one: three learning rates an arm from its method's grid, three seeds. Its truth is told by
all rates at the first seed.
"""

import tempfile
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.report.reliability import diagram
from tunescope.report.verdict.forecast import probabilities
from tunescope.reproduce.recipe import Ask, Found, Settings

TITLE = "The verdict of a pilot against the full comparison, on lab worlds"
SOURCE = "ours; the worlds are after Petrov et al. 2023, section 5"
TAKES = ("quick",)

ARMS = ("zero-shot", "demos:k=3", "prefix", "lora")


def settings(ask: Ask) -> Settings:
    return {
        "models": 2 if ask.quick else 20,
        "pretraining_steps": 200 if ask.quick else 2000,
        "steps": 100 if ask.quick else 1000,
        "batch_size": 16,
        "prefix": 20,
        "arms": list(ARMS),
    }


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    from tunescope.lab.worlds.trials import trials

    return [{"model": trial.model, "skill": trial.skill} for trial in trials(settings["models"])]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.lab.worlds import trials
    from tunescope.lab.worlds.pretrain import Recipe

    folder = trials.folder(unit["model"], settings["pretraining_steps"])
    made: Recipe = trials.recipe(unit["model"])
    with tempfile.TemporaryDirectory() as scratch:
        data = trials.data(unit["skill"], Path(scratch))
        question = _question(settings, folder, data, made)
        return {name: _asked(one, Path(scratch) / name) for name, one in question.items()}


def _question(settings: Settings, folder: Path, data: dict[str, str], made: Any) -> dict[str, Any]:
    from tunescope.comparison.pilot import piloted
    from tunescope.trial.plan import Plan
    from tunescope.trial.train.settings import Settings as Training

    steps = settings["steps"]
    full = Plan(
        model=str(folder),
        data=data,
        task={"kind": "generation"},
        arms=tuple(settings["arms"]),
        budgets=(2 * made.layers * made.width * settings["prefix"],),
        seeds=(0, 1, 2),
        settings=Training(steps=steps, batch_size=settings["batch_size"], eval_every=steps // 5, patience=6),
    )
    return {"pilot": piloted(full), "full": replace(full, seeds=(0,))}


def _asked(question: Any, out: Path) -> dict[str, Any]:
    """Of results.json what calibration reads, and the verdict that the run came to by itself."""
    from tunescope.comparison import comparison

    results = dict(comparison.ask(question, out, quiet=True).results)
    return {
        "task": {"metric": results["task"]["metric"]},
        "steps": results["protocol"]["steps"],
        "trial_steps": results["protocol"]["trial_steps"],
        "verdict": results["verdict"]["answer"],
        "arms": [_arm(arm) for arm in results["arms"]],
    }


def _arm(arm: dict[str, Any]) -> dict[str, Any]:
    kept = {name: arm[name] for name in ("name", "group", "status", "learning_rate", "score", "trials")}
    shown = ("seed", "dev", "curve", "mechanism")
    return kept | {"runs": [{name: run[name] for name in shown} for run in arm["runs"]]}


def table(settings: Settings, found: Found) -> Table:
    """By weights that never saw the world's model: each left out in turn; and, by all their worlds, new models."""
    from tunescope.lab.worlds.calibration import case, fit, held_out, judged, reliability
    from tunescope.lab.worlds.trials import FITTED

    cases = [case(unit, outcome) for unit, outcome in found]
    known, new = [one for one in cases if one.model < FITTED], [one for one in cases if one.model >= FITTED]
    weights, outside = fit(known), held_out(known)
    rows = [("each model's worlds held out in turn", _row(judged(known, outside)))]
    if new:
        asked = [probabilities(one.features, weights) for one in new]
        rows.append((f"worlds of {len({one.model for one in new})} more models", _row(judged(new, asked))))
        outside = outside + asked
    bins = reliability(cases, outside)
    truths = Counter(one.truth for one in cases)
    worlds = [
        {**unit, "truth": one.truth, "context": one.context, "delta": one.delta}
        | {"features": asdict(one.features), "held_out": chances}
        for (unit, _), one, chances in zip(found, cases, outside, strict=True)
    ]
    return Table(
        ("worlds", "somebody learned it", "decided", "right", "right when it decides", "undecided of the learned"),
        rows,
        [f"Truths by the long runs: {', '.join(f'{name} {count}' for name, count in truths.items())}."],
        {"weights": weights, "reliability": bins, "worlds": worlds},
        {"reliability.svg": diagram(bins)},
    )


def _row(judgement: dict[str, float]) -> list[Cell]:
    counts = [Cell(text=f"{judgement[name]:.0f}") for name in ("worlds", "learned", "decided", "right")]
    return [*counts, Cell((judgement["share_right"],)), Cell((judgement["share_undecided"],))]
