"""What a comparison will take, from a few real steps of every arm on this machine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch

from tunescope.attachment.attention.reach import quick_to_train
from tunescope.attachment.tuned import Tuned
from tunescope.comparison import arms, other_text
from tunescope.comparison.costs import Costs, Sizes, rounds
from tunescope.comparison.entry import check_sides, entered
from tunescope.comparison.job import Job, job
from tunescope.comparison.problem import attached, problem_of, training_in_place
from tunescope.comparison.score import rows_of
from tunescope.errors import UserError
from tunescope.system.machine import gpus, memory_meter
from tunescope.tasks.task import Labelled
from tunescope.trial import questions
from tunescope.trial.arm import ZERO_SHOT, Arm, has_every_seed
from tunescope.trial.bench import Bench
from tunescope.trial.demos import per_query
from tunescope.trial.demos.draw import drawn
from tunescope.trial.demos.order import most
from tunescope.trial.dev_rows import asked
from tunescope.trial.rates import UNTRAINED, grid
from tunescope.trial.specs import specs_at
from tunescope.trial.train.loop import Diverged, memory_errors_named, one_step
from tunescope.trial.train.microbatches import OutOfMemory
from tunescope.trial.train.optimizers import make

STEPS = 3  # the first warms up and is not counted
SCORED = 16
TOKENS = 1024  # of a step that is timed whole on a CPU; a GPU is at its best with many more
HOW = (
    f"Estimated from {STEPS} real steps of each arm on rows of the middle length (on a CPU above {TOKENS:,} tokens on "
    f"a part of them) and from scoring {SCORED} rows and a window of other text, on this machine; early stopping, and "
    "rates beyond a grid that are not tried, make it less, and seeds that are added while there is no verdict "
    "(--max-seeds) come on top."
)


@dataclass(frozen=True)
class Estimate:
    """Seconds of one step and of all the arm's runs, the memory of a step, what is told of it; or why there is none."""

    arm: str
    parameters: int
    step_seconds: float = 0.0
    total_seconds: float = 0.0
    memory_mb: float = 0.0
    problem: str = ""
    costs: Costs | None = field(default=None, compare=False)
    remarks: tuple[str, ...] = ()


def sizes_of(bench: Bench) -> Sizes:
    """The rows that are scored, with --k-shot of the first seed."""
    seen = bench.at(bench.plan.seeds[0])
    return Sizes(len(asked(seen, "dev")), len(asked(seen, "test")), isinstance(bench.task, Labelled))


def estimates(bench: Bench, said: Callable[[str], None] = lambda name: None) -> list[Estimate]:
    """One estimate an arm of the plan; the arms are tried, and nothing is kept. said: hears each arm as it begins.

    Raises:
        UserError: a comparison of these arms would not be begun, see `check_entries`.
    """
    found = []
    for one in arms.planned_arms(bench):
        said(one.name)
        found.append(_estimate(bench, one))
    if bench.plan.halving or any(one.problem for one in found):
        check_entries(bench)
    return found


def check_entries(bench: Bench) -> None:
    """Raises UserError for what is not begun: nothing to compare, a budget for one side only, an idle --halving."""
    entries = entered(bench)
    check_sides(entries)
    is_asked = bench.plan.halving and bench.plan.fit is None  # minutes may bring it about, too
    if is_asked and not any(entry.trials for entry in entries):
        raise UserError(UNTRAINED)


def _estimate(bench: Bench, arm: Arm) -> Estimate:
    try:
        with memory_errors_named():
            prepared = arms.ready(arm, bench)
            rates = grid(prepared.grids, bench.plan.trials, bench.plan.rates)[0] if prepared.trained else ()
            return _timed(bench, job(bench, prepared, rates, bench.plan.seeds[0]))
    except (UserError, OutOfMemory, Diverged) as problem:
        return Estimate(arm.name, 0, problem=str(problem))


def _timed(bench: Bench, todo: Job) -> Estimate:
    plan, prepared = bench.plan, todo.arm
    meter = memory_meter(*bench.devices)
    shown = drawn(prepared.demos, bench, todo.seed) if prepared.demos else ()
    start = time.perf_counter()
    with torch.random.fork_rng(gpus()), attached(bench, todo, specs_at(prepared, bench, shown, todo.seed)) as tuned:
        begin = time.perf_counter() - start
        step_seconds, share = _step_seconds(bench, todo, tuned.train()) if prepared.trained else (0.0, 1.0)
        tuned.eval()
        row = _score_seconds(bench, todo, tuned)
        other = _other_seconds(bench, todo, tuned)
    costs = Costs(
        arm=prepared.arm.name,
        group=prepared.group,
        trained=prepared.trained,
        varies=has_every_seed(plan, prepared),
        step=step_seconds,
        row=row,
        begin=begin,
        choice=_choice_seconds(bench, todo, row),
        other=other,
    )
    total = rounds(plan, [replace(costs, begin=0.0)], sizes_of(bench)).total()
    stored, remarks = prepared.counts["stored"], prepared.remarks
    return Estimate(prepared.arm.name, stored, step_seconds, total, meter() / share, costs=costs, remarks=remarks)


def _step_seconds(bench: Bench, todo: Job, tuned: Tuned) -> tuple[float, float]:
    """Of one update, on rows of the middle length, for as many tokens as an update has on average; and the share of
    its rows that was timed."""
    settings = bench.plan.training
    with quick_to_train(bench.model, settings.precision), training_in_place(tuned, settings):
        problem = problem_of(bench, todo, tuned)
        rows = _middle(problem.lengths, settings.batch_size)
        some = rows
        if bench.device.type == "cpu" and settings.accumulate == 1:
            some = _part(rows, problem.lengths)
        optimizer = make(settings.optimizer, problem.parameters, problem.rates, settings.weight_decay)
        timed = [_seconds(lambda: one_step(problem, settings, optimizer, some, 0)) for _ in range(STEPS)]
    share = len(some) / len(rows)
    return fmean(timed[1:]) * _longer(problem.lengths, some) / share, share


def _choice_seconds(bench: Bench, todo: Job, row: float) -> float:
    """What is tried at each seed before anything is scored: orders of demonstrations, the words of a search."""
    demos, seconds = todo.arm.demos, 0.0
    if demos and demos.tries:
        seconds += sizes_of(bench).dev * row * most(demos, bench.task)
    if todo.arm.search is not None:  # a row forward takes about what it takes to score it
        seconds += arms.passes(bench) * row
    return seconds


def _score_seconds(bench: Bench, todo: Job, tuned: Tuned) -> float:
    """Of one row, from at most `SCORED` rows of the middle length, for as many tokens as rows have on average."""
    rows = rows_of(bench, todo, tuned, "dev")
    lengths = [len(row.input_ids) for row in rows]
    task = questions.task_of(todo.arm, bench, tuned, todo.seed)
    some = _middle(lengths, SCORED)
    if bench.device.type == "cpu":
        some = _part(some, lengths)
    demos = todo.arm.demos
    times = per_query.passes(demos) if demos and demos.each else 1
    seconds = _seconds(lambda: task.predict(bench.model, [rows[row] for row in some], bench.tokenizer))
    return times * seconds / len(some) * _longer(lengths, some)


def _part(rows: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """As many of the rows as TOKENS has room for, one at least."""
    return list(rows[: max(1, TOKENS // max(1, *(lengths[row] for row in rows)))])


def _middle(lengths: Sequence[int], count: int) -> list[int]:
    """So many rows of the middle length."""
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    start = max(0, len(by_length) - count) // 2
    return by_length[start : start + count]


def _longer(lengths: Sequence[int], some: Sequence[int]) -> float:
    """How much longer rows are on average than these."""
    return fmean(lengths) / max(1.0, fmean(lengths[row] for row in some))


def _other_seconds(bench: Bench, todo: Job, tuned: Tuned) -> float:
    """Of all windows of the text that `--forgetting` is measured on, from one."""
    asked = other_text.windows(bench)
    if asked is None or not asked.rows or not (tuned.artifacts or todo.arm.label == ZERO_SHOT):
        return 0.0
    try:
        return len(asked.rows) * _seconds(lambda: other_text.losses(bench, todo, tuned, asked.rows[:1]))
    except UserError:  # there is no room for one
        return 0.0


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
