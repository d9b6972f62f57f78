"""How often the forecast of a pilot is what long runs find, on lab worlds.

The comparison is the usual one: three learning rates an arm from its method's grid and up to three past its ends, three
seeds. The long run has another seed, more steps, and prefixes of several lengths, starts and rates. In some worlds the
comparison is run whole as well, at its defaults.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunescope.report.cells import Cell, Table
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.recipe import Found, Settings
from tunescope.reproduce.recipes import _reliability

TITLE = "The forecast of a pilot against long runs, on lab worlds"
SOURCE = "ours; the worlds are after Petrov et al. 2024, section 5"
TAKES = ("quick",)
GROWS = True

TRAINED = ("prefix", "lora")
UNTRAINED = {
    "decoder": ("zero-shot", "demos:k=3"),
    "encoder": ("zero-shot", "demos:k=1"),
    "encoder-decoder": ("zero-shot",),
}
STRIDE = 3
LEARNT = 0.5  # a score below says nothing of the learning rate
PILOT, LONG, WHOLE = RUNS = ("pilot", "long", "whole")
COMPARED = range(7, 178, 15)  # the worlds in which all three are run: of every architecture two
COLUMNS = ("worlds", "somebody learned it", "decided", "right", "right when it decides", "undecided of the learned")


def settings(ask: Ask) -> Settings:
    whole = [] if ask.quick else list(COMPARED)
    size = {"steps": 60 if ask.quick else 500, "batch_size": 16, "prefix": 20}
    return {"worlds": [0, 3] if ask.quick else None, "whole": whole} | size


def worlds(settings: Settings) -> list[Any]:
    return []


def units(settings: Settings) -> list[dict[str, Any]]:
    """A pilot and a long run of every world, those first that nothing was settled on; then the whole ones.

    The first half has all kinds.
    """
    from tunescope.lab.worlds.calibration import SETTLED_ON
    from tunescope.lab.worlds.questions import questions

    every = [one.number for one in questions()] if settings["worlds"] is None else settings["worlds"]
    ordered = sorted((one for start in range(STRIDE) for one in every[start::STRIDE]), key=SETTLED_ON.__contains__)
    short = [{"world": one, "run": run} for one in ordered for run in (PILOT, LONG)]
    return short + [{"world": one, "run": WHOLE} for one in settings["whole"]]


def work(settings: Settings, unit: dict[str, Any]) -> dict[str, Any]:
    from tunescope.comparison import comparison
    from tunescope.comparison.pilot import piloted
    from tunescope.lab.worlds.long_run import long_run
    from tunescope.trial.plan import MAX_SEEDS

    with tempfile.TemporaryDirectory() as scratch:
        asked = question(settings, unit["world"], Path(scratch))
        if unit["run"] == LONG:
            return {LONG: long_run(asked, Path(scratch))}
        asked = replace(asked, max_seeds=MAX_SEEDS) if unit["run"] == WHOLE else piloted(asked)
        results = dict(comparison.ask(asked, Path(scratch) / "run", quiet=True).results)
        return {unit["run"]: _read_by_calibration(results)}


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


def _read_by_calibration(results: dict[str, Any]) -> dict[str, Any]:
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
    """By architecture, kind of skill and truth; of the worlds that have a pilot and a long run."""
    from tunescope.lab.worlds.calibration import bins, case, groups, judged

    worlds: dict[int, dict[str, Any]] = {}
    for unit, outcome in found:
        worlds.setdefault(unit["world"], {}).update(outcome)
    worlds = {number: outcome for number, outcome in worlds.items() if PILOT in outcome and LONG in outcome}
    known = {number: case(number, outcome) for number, outcome in worlds.items()}
    cases = [one for one in known.values() if one is not None]
    lost = len(known) - len(cases)
    notes = [f"In {lost} worlds an arm of the pilot did not finish; they are left out."] * bool(lost)
    notes += [f"Rates that the long runs of {arm} chose: {told}." for arm, told in _rates(found).items()]
    rows = [(name, _row(judged([(one.said, one.truth) for one in some]))) for name, some in groups(cases)]
    compared = [(one, worlds[one.world][WHOLE]) for one in cases if WHOLE in worlds[one.world]]
    rows += [(name, _row(judged(answers))) for name, answers in _side_by_side(compared).items()]
    notes += _cost(found)
    whole = {one.world: told for one, told in compared}
    numbers = {"worlds": [asdict(one) | {"said": one.said} | _whole(whole.get(one.world)) for one in cases]}
    drawn = _reliability.drawn(bins(cases), "worlds in which a context suffices, by what the pilot showed")
    return Table(COLUMNS, rows, notes, numbers, {"verdict-calibration.svg": drawn})


def _side_by_side(compared: Sequence[tuple[Any, dict[str, Any]]]) -> dict[str, list[tuple[str, str]]]:
    """What the whole comparison and the pilot said of the same worlds, each beside what is true."""
    from tunescope.lab.worlds.calibration import whole_said

    if not compared:
        return {}
    whole = [(whole_said(told["verdict"]), one.truth) for one, told in compared]
    return {"whole comparisons": whole, "pilots of the same": [(one.said, one.truth) for one, _ in compared]}


def _whole(told: dict[str, Any] | None) -> dict[str, Any]:
    """Of a whole comparison its verdict, and in how many seeds."""
    if told is None:
        return {}
    return {"whole": told["verdict"], "seeds": max(len(arm["runs"]) for arm in told["arms"])}


def _cost(found: Found) -> list[str]:
    """The share of the CPU of whole comparisons that the pilots of the same worlds took."""
    seconds = {(unit["world"], unit["run"]): outcome.get("cpu_seconds") for unit, outcome in found}
    shares = [
        part / whole
        for (world, run), whole in seconds.items()
        if run == WHOLE and whole and (part := seconds.get((world, PILOT)))
    ]
    if not shares:
        return []
    return [f"A pilot took {median(shares):.2f} of the CPU of the whole comparison, in the middle of {len(shares)}."]


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
