"""How often the forecast of a pilot is what long runs find, on lab worlds.

The comparison is the usual one: three learning rates an arm from its method's grid and up to three past its ends, three
seeds. The long run has another seed, more steps, and prefixes of several lengths, starts and rates.
"""

import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.reproduce.recipe import Ask, Found, Settings
from tunescope.reproduce.recipes import _reliability

TITLE = "The forecast of a pilot against long runs, on lab worlds"
SOURCE = "ours; the worlds are after Petrov et al. 2023, section 5"
TAKES = ("quick",)

TRAINED = ("prefix", "lora")
UNTRAINED = {
    "decoder": ("zero-shot", "demos:k=3"),
    "encoder": ("zero-shot", "demos:k=1"),
    "encoder-decoder": ("zero-shot",),
}
STRIDE = 3
LEARNT = 0.5  # a score below says nothing of the learning rate
RUNS = PILOT, LONG = ("pilot", "long")
COLUMNS = ("worlds", "somebody learned it", "decided", "right", "right when it decides", "undecided of the learned")


def settings(ask: Ask) -> Settings:
    return {"worlds": [0, 3] if ask.quick else None, "steps": 60 if ask.quick else 500, "batch_size": 16, "prefix": 20}


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    """A pilot and a long run of every world, in an order in which the first half has all kinds."""
    from tunescope.lab.worlds.questions import questions

    every = [one.number for one in questions()] if settings["worlds"] is None else settings["worlds"]
    return [{"world": one, "run": run} for start in range(STRIDE) for one in every[start::STRIDE] for run in RUNS]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.comparison import comparison
    from tunescope.comparison.pilot import piloted
    from tunescope.lab.worlds.long_run import long_run

    with tempfile.TemporaryDirectory() as scratch:
        asked = question(settings, unit["world"], Path(scratch))
        if unit["run"] == LONG:
            return {LONG: long_run(asked, Path(scratch))}
        results = dict(comparison.ask(piloted(asked), Path(scratch) / PILOT, quiet=True).results)
        return {PILOT: _told(results)}


def question(settings: Settings, number: int, scratch: Path) -> Any:
    """The comparison's plan on a world, whose files are written to the folder."""
    from tunescope.lab.worlds import questions
    from tunescope.lab.worlds.base_table import base
    from tunescope.lab.worlds.bases import pretrained
    from tunescope.trial.plan import Plan
    from tunescope.trial.train.settings import Settings as Training

    asked = questions.question(number)
    made, steps = base(asked.model), settings["steps"]
    attentions = 3 if made.body.kind == "encoder-decoder" else 1
    folder = pretrained(made)
    untrained = ("head",) if asked.by == "head" else UNTRAINED[made.body.kind]
    return Plan(
        model=str(folder),
        data=asked.files(scratch),
        task=asked.asked,
        arms=(*untrained, *TRAINED),
        budgets=(2 * made.body.layers * made.body.width * settings["prefix"] * attentions,),
        seeds=(0, 1, 2),
        forgetting="none",
        settings=Training(steps=steps, batch_size=settings["batch_size"], eval_every=steps // 10),
    )


def _told(results: dict[str, Any]) -> dict[str, Any]:
    """Of results.json what a calibration reads, and the verdict that the run came to by itself."""
    return {
        "model": {"layers": results["model"]["layers"]},
        "task": {key: results["task"].get(key) for key in ("metric", "chance")},
        "steps": results["protocol"]["steps"],
        "trial_steps": results["protocol"]["trial_steps"],
        "verdict": results["verdict"]["answer"],
        "arms": [_arm(arm) for arm in results["arms"]],
    }


def _arm(arm: dict[str, Any]) -> dict[str, Any]:
    kept = {
        name: arm[name]
        for name in ("name", "group", "status", "reason", "learning_rate", "score", "interval", "trials")
    }
    shown = ("seed", "dev", "test", "curve", "mechanism", "seconds")
    return kept | {"runs": [{name: run.get(name) for name in shown} for run in arm["runs"]]}


def table(settings: Settings, found: Found) -> Table:
    """By architecture, kind of skill and truth."""
    from tunescope.lab.worlds.calibration import bins, case, groups, judged

    worlds: dict[int, dict[str, Any]] = {}
    for unit, outcome in found:
        worlds.setdefault(unit["world"], {}).update(outcome)
    known = [case(number, outcome) for number, outcome in worlds.items()]
    cases = [one for one in known if one is not None]
    lost = len(known) - len(cases)
    notes = [f"In {lost} worlds an arm of the pilot did not finish; they are left out."] * bool(lost)
    notes += [f"Rates that the long runs of {arm} chose: {told}." for arm, told in _rates(found).items()]
    rows = [(name, _row(judged(some))) for name, some in groups(cases)]
    numbers = {"worlds": [asdict(one) | {"said": one.said} for one in cases]}
    drawn = _reliability.drawn(bins(cases), "worlds in which a context suffices, by what the pilot showed")
    return Table(COLUMNS, rows, notes, numbers, {"verdict-calibration.svg": drawn})


def _rates(found: Found) -> dict[str, str]:
    """Of each arm of the long runs how often each learning rate came out first, where the arm learnt something."""
    chosen: dict[str, Counter[float]] = {}
    for _, outcome in found:
        for one in outcome.get(LONG, ()):
            if one["score"] >= LEARNT:
                chosen.setdefault(one["arm"], Counter())[one["learning_rate"]] += 1
    return {
        arm: ", ".join(f"{rate:g} {times} times" for rate, times in sorted(counts.items()))
        for arm, counts in chosen.items()
    }


def _row(judgement: dict[str, float]) -> list[Cell]:
    counts = [Cell(text=f"{judgement[name]:.0f}") for name in ("worlds", "learned", "decided", "right")]
    undecided = round(judgement["share_undecided"] * judgement["learned"])
    return [
        *counts,
        _share(int(judgement["right"]), int(judgement["decided"])),
        _share(undecided, int(judgement["learned"])),
    ]


def _share(right: int, of: int) -> Cell:
    """With Wilson's interval."""
    if not of:
        return Cell(text="–")
    low, high = _reliability.wilson(right, of)
    return Cell(text=f"{right / of:.3f} [{low:.3f}, {high:.3f}]")
