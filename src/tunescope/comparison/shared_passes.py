"""Runs of one comparison that share their passes of the model, as names of a bank.

Each keeps its own order of rows, optimizer, learning rate, early stop and saved state, so that its numbers are those it
has alone but for the rounding of a pass of several; whatever goes wrong in a group, its runs go on one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import quick_to_train
from tunescope.attachment.bank.bank import Bank
from tunescope.attachment.bank.banked import Banked
from tunescope.attachment.bank.member import Member
from tunescope.attachment.initial_artifacts import initialised
from tunescope.comparison import run as run_arm
from tunescope.comparison import score
from tunescope.comparison.job import Job
from tunescope.comparison.outcome import Outcome, stopped
from tunescope.comparison.problem import problem_of, recomputing
from tunescope.methods.artifact import AttentionDelta
from tunescope.methods.deltas.full import Full
from tunescope.system import files, run_folder
from tunescope.system.machine import gpus, memory_meter, seeded
from tunescope.trial import questions
from tunescope.trial.bench import Bench
from tunescope.trial.dev_rows import early_rows
from tunescope.trial.specs import specs_at
from tunescope.trial.train.joint_runs import train_together
from tunescope.trial.train.loop import Diverged, Problem, Saving, is_paused, memory_errors_named, training

SIZES = (2, 4, 8)  # runs in a pass, of which the quickest is taken where it is measured
STEPS = 3  # timed of each size, after one that is not
GAIN = 0.95  # the share of the time of one alone that a group must stay below, to be worth its other rounding

Reports = Callable[[Job], run_arm.Report]


def groups(bench: Bench, jobs: Sequence[Job], size: int) -> list[list[Job]]:
    """The jobs in their order, as many together as `size` says of those that can be."""
    shared = [todo for todo in jobs if can_share(bench, todo)]
    alone = [[todo] for todo in jobs if not can_share(bench, todo)]
    return [*([shared[at : at + size] for at in range(0, len(shared), size)]), *alone]


def can_share(bench: Bench, todo: Job) -> bool:
    """Whether a run trains what a row of a batch can have to itself, on rows that all seeds share, without dropout."""
    arm = todo.arm
    apart = (AttentionDelta, *_whole_model())
    return (
        arm.trained
        and arm.demos is None
        and arm.search is None
        and bench.plan.k_shot is None
        and not any(isinstance(spec, apart) or getattr(spec, "dropout", 0.0) for spec in arm.specs)
    )


def run(bench: Bench, jobs: Sequence[Job], folder: Path, report: Reports) -> dict[str, Outcome]:
    """Every job's outcome by id: trained together where they are several, then scored and told as each is alone.

    What could not be trained together is trained alone; its outcome then says why under "apart".
    """
    left = [todo for todo in jobs if run_arm.before(todo, folder) is None]
    with _caught() as problems:
        if len(left) > 1:
            _train(bench, left, folder, report)
    apart = {todo.id: {"apart": problems[0]} for todo in left if problems}
    return {todo.id: run_arm.run(bench, todo, folder, report(todo)) | apart.get(todo.id, {}) for todo in jobs}


def best_size(bench: Bench, jobs: Sequence[Job]) -> tuple[int, str]:
    """How many runs are quickest together here, from a few steps of each size, and that in words."""
    shared = [todo for todo in jobs if can_share(bench, todo)]
    if len(shared) < 2:
        return 1, "every run has its own passes: fewer than two of them could share"
    times: dict[int, float] = {}
    for size in [size for size in (1, *SIZES) if size <= len(shared)]:
        with _caught() as problems:
            times[size] = _seconds(bench, shared[:size]) / size
        if problems and len(times) < 2:
            return 1, f"every run has its own passes: {size} of them were tried together, {problems[0]}"
        if problems:
            break
    size = min(times, key=times.__getitem__)
    told = ", ".join(f"{size} together {seconds / times[1]:.2f}" for size, seconds in times.items() if size > 1)
    if times[size] > GAIN * times[1]:
        return 1, f"every run has its own passes: a step took, against alone, {told}"
    return size, f"{size} runs share each pass: a step took, against alone, {told}"


@contextmanager
def _caught() -> Iterator[list[str]]:
    """What goes wrong within, where there is another way, as words in the list."""
    problems: list[str] = []
    try:
        with memory_errors_named():
            yield problems
    except files.DiskError:
        raise
    except Exception as problem:
        if files.disk_problem(problem):
            raise
        problems.append(str(problem) or type(problem).__name__)


def _whole_model() -> tuple[type, ...]:
    return (Full,)


def _attached(bench: Bench, jobs: Sequence[Job]) -> Banked:
    """The model with every job's fresh artifacts under its id."""
    made = {
        todo.id: initialised(bench.model, specs_at(todo.arm, bench, (), todo.seed), bench.tokenizer, todo.seed)
        for todo in jobs
    }
    return attach(bench.model, Bank(made), tokenizer=bench.tokenizer)


def _problems(bench: Bench, jobs: Sequence[Job], tuned: Banked) -> tuple[dict[str, Problem], Callable[..., Any]]:
    """Each job as it would be alone, and the losses of all in one pass."""
    members = {todo.id: Member(tuned, todo.id).train() for todo in jobs}
    problems, drawn = {}, {}
    for todo in jobs:
        member = members[todo.id]
        problem = problem_of(bench, todo, member)
        early = early_rows(bench, todo.steps)
        whole = partial(_score, bench, todo, member) if problem.whole else None
        problems[todo.id] = replace(problem, score=partial(_score, bench, todo, member, early), whole=whole)
        drawn[todo.id] = questions.drawn_rows(todo.arm, bench, member, todo.seed)

    def losses(asked: Mapping[str, list[int]]) -> dict[str, Tensor]:
        rows = {name: drawn[name](chosen) for name, chosen in asked.items()}
        with tuned.rows([name for name, some in rows.items() for _ in some]), recomputing(bench):
            some = [row for own in rows.values() for row in own]
            every = bench.task.row_losses(bench.model, some, bench.tokenizer)
        each = torch.split(every, [len(some) for some in rows.values()])
        return {name: own.sum() / _count(some) for (name, some), own in zip(rows.items(), each, strict=True)}

    return problems, losses


def _count(rows: Sequence[Any]) -> int:
    """What a batch's loss is the mean over: its target tokens, or its rows where a head or a mask answers."""
    return sum(len(row.target_ids) if row.target_ids and row.slot is None else 1 for row in rows)


def _score(bench: Bench, todo: Job, member: Member, only: Sequence[int] | None = None) -> float:
    with member.acting():
        return score.score(bench, todo, member, "dev", only).value if todo.scored else 0.0


def _train(bench: Bench, jobs: Sequence[Job], folder: Path, report: Reports) -> None:
    """Train them together, and leave in the folder what each would have left."""
    settings, meter = bench.plan.training, memory_meter(*bench.devices)
    with _attached(bench, jobs) as tuned, seeded(jobs[0].seed):
        problems, losses = _problems(bench, jobs, tuned)
        work = {todo.id: run_folder.working(folder, todo.id) for todo in jobs}
        runs = {
            todo.id: training(
                problems[todo.id],
                replace(settings, steps=todo.steps),
                todo.seed,
                saving=Saving(work[todo.id], run_arm.SAVE_EVERY),
                report=report(todo),
                until=todo.until,
                sharing=len(jobs),
            )
            for todo in jobs
        }
        with quick_to_train(bench.model, settings.precision):
            states = train_together(runs, losses, bench.device, settings.precision)
        results: dict[str, Outcome] = {}
        for todo in jobs:
            state, member = states[todo.id], Member(tuned, todo.id)
            if isinstance(state, Diverged):
                results[todo.id] = stopped(todo, "diverged", state)
            elif not is_paused(state, replace(settings, steps=todo.steps)):
                with member.eval().acting():
                    results[todo.id] = run_arm.concluded(bench, todo, work[todo.id], member, state, meter())
    for name, result in results.items():  # all at one time: what is cut off before it goes on in the same group
        run_folder.finish(work[name], folder, name, result | {"together": len(jobs)})


def step(bench: Bench, jobs: Sequence[Job]) -> dict[str, float]:
    """The loss of each after its first step, all in one pass; nothing is kept."""
    with torch.random.fork_rng(gpus()), _attached(bench, jobs) as tuned:
        problems, losses = _problems(bench, jobs, tuned)
        runs = _one_step(bench, jobs, problems)
        states = train_together(runs, losses, bench.device, bench.plan.training.precision)
    return {
        name: float(state.curve[0]["loss"] or 0.0) for name, state in states.items() if not isinstance(state, Diverged)
    }


def _seconds(bench: Bench, jobs: Sequence[Job]) -> float:
    """Of one step of them all, the least of a few, each on its first batch."""
    settings, times = bench.plan.training, []
    with (
        torch.random.fork_rng(gpus()),
        _attached(bench, jobs) as tuned,
        quick_to_train(bench.model, settings.precision),
    ):
        problems, losses = _problems(bench, jobs, tuned)
        for _ in range(1 + STEPS):
            runs = _one_step(bench, jobs, problems)
            start = time.perf_counter()
            train_together(runs, losses, bench.device, settings.precision)
            times.append(time.perf_counter() - start)
    return min(times[1:])


def _one_step(bench: Bench, jobs: Sequence[Job], problems: Mapping[str, Problem]) -> dict[str, Any]:
    """Each run as a single step, without a score."""
    once = replace(bench.plan.settings, steps=1)
    still = {name: replace(problem, score=lambda: 0.0, whole=None) for name, problem in problems.items()}
    return {todo.id: training(still[todo.id], once, todo.seed) for todo in jobs}
