"""The only training loop. It knows rows by number and the model only through `loss` and `score`."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from tunescope.system.machine import precision_on
from tunescope.tasks.answers.not_numbers import NotNumbers
from tunescope.trial.train import state as checkpoint
from tunescope.trial.train.batches import stream
from tunescope.trial.train.microbatches import OutOfMemory, Parts
from tunescope.trial.train.optimizers import factor, make
from tunescope.trial.train.settings import Settings
from tunescope.trial.train.share import ALONE, Share
from tunescope.trial.train.state import Point, State

# of a CPU, of a GPU, and of the libraries of NVIDIA, as in CUBLAS_STATUS_ALLOC_FAILED
NO_MEMORY = ("can't allocate memory", "out of memory", "ALLOC_FAILED")


class Diverged(RuntimeError):  # noqa: N818
    """The loss, its gradient or the development scores are no longer finite numbers."""

    def __init__(self, step: int, loss: float, scores: str = ""):
        hint = "; a smaller learning rate may help" if step > 1 or scores else ", where no rate has acted yet"
        super().__init__(f"loss {loss:g} at step {step}{scores}{hint}")
        self.step, self.loss = step, loss


@dataclass(frozen=True)
class Problem:
    """What is trained, on which rows.

    `loss(rows)` is the mean over the labelled tokens of those rows; `score()` is on the development set,
    higher is better; `whole()` is that of the tensors that are kept, where `score` is of fewer rows. `labelled`
    counts each row's labelled tokens: it weights the parts of an accumulated batch. `share`: which part of them is
    this process's. `parts`: given where a batch that memory ends for is to go through in more of them; that is none
    for the caller to see to.
    """

    parameters: Mapping[str, Tensor]
    rates: Mapping[str, float]
    loss: Callable[[list[int]], Tensor]
    score: Callable[[], float]
    lengths: Sequence[int]
    labelled: Sequence[int]
    share: Share = ALONE
    parts: Parts | None = None
    whole: Callable[[], float] | None = None


@dataclass(frozen=True)
class Progress:
    """Where a run is; `best` is None before the first evaluation."""

    step: int
    steps: int
    loss: float
    best: float | None
    seconds_left: float


@dataclass(frozen=True)
class Saving:
    """Where the state is kept while training, and how often."""

    folder: Path
    every_seconds: float = 30.0


@dataclass(frozen=True)
class Part:
    """Rows whose loss is wanted, and what it is multiplied by: their share of the batch's labelled tokens."""

    rows: list[int]
    weight: float


Result = TypeVar("Result")
Work = Generator[Part, float, Result]  # sent back: the value of the weighted loss, once its gradients are there


def train(
    problem: Problem,
    settings: Settings,
    seed: int,
    *,
    saving: Saving | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    until: int | None = None,
) -> State:
    """Train in place; afterwards the parameters hold the tensors that scored best.

    until: a step, of those at which it is scored, to pause at: then `is_paused` holds of the state, which is saved.

    Early stopping: the development score is taken every `eval_every` steps and after the last; training stops
    after `patience` scores in a row that do not exceed the best, and the earliest best is kept. A saved
    state in `saving.folder` is gone on from, to the same bits (on a CPU).

    Raises:
        Diverged: the loss or the gradient's norm is not finite, or development scores are NaN.
    """
    return _alone(training(problem, settings, seed, saving=saving, report=report, until=until), problem, settings)


def one_step(
    problem: Problem, settings: Settings, optimizer: torch.optim.Optimizer, rows: list[int], step: int
) -> float:
    """One update; returns the batch's loss."""
    return _alone(update(problem, settings, optimizer, rows, step), problem, settings)


def _alone(work: Work[Result], problem: Problem, settings: Settings) -> Result:
    """Every loss that is asked for in a pass of its own."""
    device = next(iter(problem.parameters.values())).device
    try:
        part = next(work)
        while True:
            value = _passed(problem, part, device, settings.precision)
            part = work.send(value) if isinstance(value, float) else work.throw(value)
    except StopIteration as done:
        result: Result = done.value
        return result


def _passed(problem: Problem, part: Part, device: torch.device, precision: str) -> float | OutOfMemory:
    """The loss, with its gradients there; or that there was no room for it, where the batch may be cut smaller."""
    try:
        with memory_errors_named():
            with autocast(device, precision):
                loss = problem.loss(part.rows) * part.weight
            loss.backward()  # type: ignore[no-untyped-call]
            return float(loss.item())
    except OutOfMemory as found:
        if problem.parts is None:
            raise
        return OutOfMemory(str(found))  # one that holds no frame, and so nothing of the pass


def training(
    problem: Problem,
    settings: Settings,
    seed: int,
    *,
    saving: Saving | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    until: int | None = None,
    sharing: int = 1,
) -> Work[State]:
    """`train`, but that the losses are computed by whoever drives it: several runs can share a pass.

    sharing: how many do, each of which has its part of the time.
    """
    parameters = problem.parameters
    optimizer = make(settings.optimizer, parameters, problem.rates, settings.weight_decay)
    state = (saving and checkpoint.load(saving.folder, parameters, optimizer)) or State()
    rows = stream(problem.lengths, settings.batch_size, seed, state.step)
    before, began = state.seconds, time.monotonic()
    saved = began
    last = settings.steps if until is None else until
    while state.step < last and state.waited < settings.patience:
        problem.share.draws_for(seed, state.step)
        loss = yield from update(problem, settings, optimizer, next(rows), state.step)
        state.step += 1
        if state.step == settings.steps // 2 and settings.eval_every >= settings.steps:
            state.loss_sum, state.loss_count = 0.0, 0  # a run with one score has the loss of its last half
        state.loss_sum, state.loss_count = state.loss_sum + loss, state.loss_count + 1
        if state.step % settings.eval_every == 0 or state.step == settings.steps:
            _evaluate(problem, state)
        state.seconds = before + (time.monotonic() - began) / sharing
        left = sharing * state.seconds / state.step * (settings.steps - state.step)
        report(Progress(state.step, settings.steps, loss, state.best_score, left))
        if saving and time.monotonic() - saved >= saving.every_seconds:
            checkpoint.save(saving.folder, state, parameters, optimizer)
            saved = time.monotonic()
    if is_paused(state, settings):
        assert saving is not None
        checkpoint.save(saving.folder, state, parameters, optimizer)
        return state
    with torch.no_grad():
        for name, leaf in parameters.items():
            leaf.copy_(state.best[name])
    if problem.whole is not None:
        state.best_score = _scored(problem.whole, state.best_step, float(state.curve[-1]["loss"] or 0.0))
    return state


def is_paused(state: State, settings: Settings) -> bool:
    """Whether the run was to go no further for now, and has more steps before it."""
    return state.step < settings.steps and state.waited < settings.patience


def update(
    problem: Problem, settings: Settings, optimizer: torch.optim.Optimizer, rows: list[int], step: int
) -> Work[float]:
    """One update of the parameters, in as many parts as are accumulated; returns the batch's loss."""
    optimizer.zero_grad(set_to_none=True)
    if problem.parts is None:
        total = yield from _summed(problem, rows, settings.accumulate)
    else:
        total = yield from _halved(problem, rows, problem.parts, optimizer)
    total = problem.share.total(total) / problem.share.processes
    norm = torch.nn.utils.clip_grad_norm_(list(problem.parameters.values()), settings.clip)
    if not torch.isfinite(norm) or total != total or abs(total) == float("inf"):
        raise Diverged(step + 1, total)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor(settings.schedule, step, settings.steps, settings.warmup)
    optimizer.step()
    return total


def _halved(problem: Problem, rows: list[int], parts: Parts, optimizer: torch.optim.Optimizer) -> Work[float]:
    """`_summed`, in more parts where memory ends, in one of several processes too, with the gradients of all."""
    while True:
        total, short = 0.0, ""
        with problem.share.apart():  # a process without memory cannot take part in what the others wait for
            try:
                total = yield from _summed(problem, rows, parts.count)
            except OutOfMemory as found:
                short = str(found)
        if not problem.share.total(float(bool(short))):
            problem.share.average()
            return total
        optimizer.zero_grad(set_to_none=True)
        parts.double(len(rows), OutOfMemory(short or "another of the processes has no memory left"))


def _summed(problem: Problem, rows: list[int], parts: int) -> Work[float]:
    """The batch's loss, with the gradients of all its parts there."""
    size, total = -(-len(rows) // parts), 0.0
    whole = sum(problem.labelled[row] for row in rows)
    for start in range(0, len(rows), size):
        total += yield Part(*problem.share.of(rows[start : start + size], problem.labelled, whole))
    return total


def _evaluate(problem: Problem, state: State) -> None:
    loss = state.loss_sum / state.loss_count
    score = _scored(problem.score, state.step, loss)
    point: Point = {"step": state.step, "loss": loss, "dev": score}
    state.curve.append(point)
    state.loss_sum, state.loss_count = 0.0, 0
    if state.best_score is None or score > state.best_score:
        state.best_score, state.best_step, state.waited = score, state.step, 0
        state.best = {name: leaf.detach().to("cpu", copy=True) for name, leaf in problem.parameters.items()}
    else:
        state.waited += 1


def _scored(score: Callable[[], float], step: int, loss: float) -> float:
    """The score, of tensors whose loss was a number: where theirs is none, the last updates have made it so."""
    try:
        return score()
    except NotNumbers as found:
        told = f", and behind it development scores that are no numbers (NaN), first on row {found.row}"
        raise Diverged(step, loss, told) from found


def early_stopping(settings: Settings) -> str:
    """The rule in words, for the record."""
    return (
        f"development score every {settings.eval_every} steps and after the last; "
        f"stop after {settings.patience} in a row that do not exceed the best; the earliest best is kept"
    )


@contextmanager
def memory_errors_named() -> Iterator[None]:
    """Raise OutOfMemory for what torch raises, which differs by device."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as problem:
        raise OutOfMemory(_first_line(problem)) from problem
    except RuntimeError as problem:
        if any(words in str(problem) for words in NO_MEMORY):
            raise OutOfMemory(_first_line(problem)) from problem
        raise


def _first_line(problem: BaseException) -> str:
    return f"the device ran out of memory: {(str(problem).splitlines() or ['no more is known'])[0]}"


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The precision that losses are computed in."""
    wanted = precision_on(device, precision) == "bfloat16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted)
