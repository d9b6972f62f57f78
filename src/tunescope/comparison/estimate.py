"""What a comparison will take, from a few real steps of every arm on this machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from tunescope.attachment.tuned import Tuned
from tunescope.comparison import arms, other_text
from tunescope.comparison.job import Job, job
from tunescope.comparison.run import attached, problem_of
from tunescope.comparison.score import rows_of
from tunescope.errors import UserError
from tunescope.system.machine import memory_meter
from tunescope.trial import questions
from tunescope.trial.arm import ZERO_SHOT, Arm, seeds_of
from tunescope.trial.bench import Bench
from tunescope.trial.demos import own
from tunescope.trial.demos.draw import drawn
from tunescope.trial.demos.order import most
from tunescope.trial.plan import Plan
from tunescope.trial.rates import grid, trial_steps
from tunescope.trial.specs import specs_at
from tunescope.trial.train.loop import memory_errors_named, one_step
from tunescope.trial.train.optimizers import make
from tunescope.trial.train.parts import OutOfMemory

STEPS = 3  # the first warms up and is not counted
SCORED = 16
HOW = (
    f"Estimated from {STEPS} real steps of each arm on rows of the middle length and from scoring {SCORED} rows and a "
    "window of other text, on this machine; early stopping, and an end of a grid that does not win, make it less, and "
    "seeds that are added while there is no verdict (--max-seeds) come on top."
)


@dataclass(frozen=True)
class Estimate:
    """Seconds of one step and of all the arm's runs, and the memory of a step; or why there is none."""

    arm: str
    parameters: int
    step_seconds: float = 0.0
    total_seconds: float = 0.0
    memory_mb: float = 0.0
    problem: str = ""


def estimates(bench: Bench) -> list[Estimate]:
    """One estimate an arm of the plan; the arms are tried, and nothing is kept."""
    return [_estimate(bench, one) for one in arms.asked(bench)]


def _estimate(bench: Bench, arm: Arm) -> Estimate:
    try:
        with memory_errors_named():
            prepared = arms.ready(arm, bench)
            rates = grid(prepared.grids, bench.plan.trials, bench.plan.rates)[0] if prepared.trained else ()
            return _timed(bench, job(bench, prepared, rates, bench.plan.seeds[0]))
    except (UserError, OutOfMemory) as problem:
        return Estimate(arm.name, 0, problem=str(problem))


def _timed(bench: Bench, todo: Job) -> Estimate:
    plan, prepared, settings = bench.plan, todo.arm, bench.plan.settings
    meter = memory_meter(bench.device)
    shown = drawn(prepared.demos, bench, todo.seed) if prepared.demos else ()
    with torch.random.fork_rng(), attached(bench, todo, specs_at(prepared, bench, shown, todo.seed)) as tuned:
        step_seconds = 0.0
        if prepared.trained:
            problem = problem_of(bench, todo, tuned.train())
            by_length = sorted(range(len(problem.lengths)), key=problem.lengths.__getitem__)
            middle = max(0, len(by_length) - settings.batch_size) // 2
            rows = by_length[middle : middle + settings.batch_size]
            optimizer = make(settings.optimizer, problem.parameters, problem.rates, settings.weight_decay)
            timed = [_seconds(lambda: one_step(problem, settings, optimizer, rows, 0)) for _ in range(STEPS)]
            step_seconds = median(timed[1:])
            tuned.eval()
        score_seconds = _score_seconds(bench, todo, tuned)
        other_seconds = _other_seconds(bench, todo, tuned)
    sizes = {part: len(rows) for part, rows in bench.splits.parts().items()}
    score = sizes["dev"] * score_seconds
    seeds = len(seeds_of(plan, prepared))
    total = seeds * (sizes["test"] * score_seconds + other_seconds + (0 if prepared.trained else score))
    if prepared.demos and prepared.demos.tries:
        total += seeds * score * most(prepared.demos, bench.task)
    if prepared.search is not None:  # a row forward takes about what it takes to score it
        total += seeds * arms.passes(bench) * score_seconds
    for steps in _runs(plan) if prepared.trained else ():
        total += steps * step_seconds + -(-steps // settings.eval_every) * score
    return Estimate(prepared.arm.name, prepared.counts["stored"], step_seconds, total, meter())


def _runs(plan: Plan) -> list[int]:
    """The steps of every run of a trained arm: a trial at the first seed is that seed's run, unless it is shorter."""
    rates, steps = (len(plan.rates) or plan.trials) + plan.past, plan.settings.steps
    if plan.halving:
        return trial_steps(plan.race) + [steps] * (plan.past + len(plan.seeds) - 1)
    if plan.trial_steps is None:
        return [steps] * (rates + len(plan.seeds) - 1)
    return [plan.trial_steps] * rates + [steps] * len(plan.seeds)


def _score_seconds(bench: Bench, todo: Job, tuned: Tuned) -> float:
    """Of one row, from `SCORED` rows of the middle length."""
    rows = sorted(rows_of(bench, todo, tuned, "dev"), key=lambda row: len(row.input_ids))
    task = questions.task_of(todo.arm, bench, tuned, todo.seed)
    middle = max(0, len(rows) - SCORED) // 2
    some = rows[middle : middle + SCORED]
    demos = todo.arm.demos
    times = own.passes(demos) if demos and demos.each else 1
    return times * _seconds(lambda: task.predict(bench.model, some, bench.tokenizer)) / len(some)


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
