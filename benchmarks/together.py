"""A training step of several runs of a comparison in one pass of the model, against one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import Scale
from tunescope.comparison import shared_passes
from tunescope.comparison.entry import entered
from tunescope.comparison.job import Job
from tunescope.lab.demo import prepare
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.train.settings import Settings

ARMS = ("prefix:length=10", "lora:rank=4", "soft:length=10")
TRIALS = 3  # of each arm: nine runs, of which eight go together
ROWS = {"full": (2, 8, 32), "tiny": (2,)}
TOGETHER = 8


def run(scale: Scale) -> Result:
    ratios = []
    for rows in ROWS[scale.name]:
        with tempfile.TemporaryDirectory() as name:
            bench, jobs = _opened(Path(name), rows)
        steps: dict[str, Callable[[], object]] = {
            "together": lambda bench=bench, jobs=jobs: shared_passes.step(bench, jobs),  # type: ignore[misc]
            "one by one": lambda bench=bench, jobs=jobs: [shared_passes.step(bench, [one]) for one in jobs],  # type: ignore[misc]
        }
        times = alternating(steps, scale.rounds)
        case = f"demo model, {TOGETHER} runs of {rows} rows"
        ratios.append(compared(case, "together", "one by one", times))
    check = Check("largest difference of a loss", _difference(bench, jobs), 1e-5)
    return Result(ratios, [check], {"arms": list(ARMS), "note": "attaching is part of what is timed, as in a run"})


def _opened(folder: Path, rows: int) -> tuple[Bench, list[Job]]:
    setup = prepare(folder)
    task = setup.tasks[0]
    data = {part: str(task[part]) for part in ("train", "dev", "test")}  # type: ignore[literal-required]
    plan = Plan(
        model=str(setup.model),
        data=data,
        task={"kind": "generation"},
        arms=ARMS,
        trials=TRIALS,
        settings=replace(Settings(), batch_size=rows),
    )
    bench = open_bench(plan)
    return bench, [todo for entry in entered(bench) for todo in entry.trials][:TOGETHER]


def _difference(bench: Bench, jobs: list[Job]) -> float:
    together = shared_passes.step(bench, jobs)
    return max(abs(together[one.id] - shared_passes.step(bench, [one])[one.id]) for one in jobs)
