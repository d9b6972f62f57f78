"""An arm on its model as the training loop sees it: attached, its loss and its score as functions of rows by number."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor

from tunescope.attachment.attached import Attached, attach
from tunescope.attachment.guards.checkpointing import checkpointed
from tunescope.attachment.share import as_first
from tunescope.attachment.tuned import Bare, Tuned
from tunescope.comparison import score
from tunescope.comparison.job import Job
from tunescope.methods.artifact import Artifact, Spec
from tunescope.system.say import say
from tunescope.trial import questions
from tunescope.trial.bench import Bench
from tunescope.trial.demos import draw
from tunescope.trial.dev_rows import early_rows
from tunescope.trial.specs import specs_at
from tunescope.trial.train.loop import Problem
from tunescope.trial.train.microbatches import Parts
from tunescope.trial.train.settings import Settings
from tunescope.trial.train.share import share_of


def specs_of(bench: Bench, todo: Job) -> tuple[Any, ...]:
    """The arm's specs behind its demonstrations, in the order that was found for them."""
    rows = (
        questions.demos_shown(todo.arm.demos, todo.arm.chain, bench, todo.seed).rows
        if todo.arm.in_front and todo.arm.demos
        else ()
    )
    return specs_at(todo.arm, bench, rows, todo.seed)


def attached(bench: Bench, todo: Job, what: Sequence[Spec | Artifact]) -> AbstractContextManager[Tuned]:
    if todo.arm.demos and todo.arm.demos.each:
        draw.source(todo.arm.demos, bench)  # rows are compared by the model as it is
    if not what:
        return nullcontext(Bare())
    return attach(bench.model, *what, tokenizer=bench.tokenizer, seed=todo.seed)


def training_in_place(tuned: Tuned, settings: Settings) -> AbstractContextManager[object]:
    """Full tuning alone trains the weights themselves, but where a decay is of their change."""
    if isinstance(tuned, Attached) and tuned.is_weights and not settings.weight_decay:
        return tuned.in_place()
    return nullcontext()


def problem_of(bench: Bench, todo: Job, tuned: Tuned) -> Problem:
    """The task on this model, as functions of rows by number."""
    rows = score.rows_of(bench, todo, tuned, "train")
    drawn = questions.drawn_rows(todo.arm, bench, tuned, todo.seed)
    parameters = dict(tuned.named_parameters())
    first, early = todo.arm.in_front, early_rows(bench, todo.steps)
    return Problem(
        parameters=parameters,
        rates={name: todo.rates[int(name.partition(".")[0]) - first] for name in parameters},
        loss=lambda chosen: _loss(bench, drawn(chosen)),
        score=partial(_dev, bench, todo, tuned, early),
        whole=None if early is None else partial(_dev, bench, todo, tuned),
        lengths=[len(row.input_ids) + len(row.target_ids) for row in rows],
        labelled=[max(1, len(row.target_ids)) for row in rows],
        parts=Parts(bench.plan.settings.accumulate, partial(_tell, todo)) if bench.plan.halve_batches else None,
        share=share_of(bench.model, parameters),
    )


def _dev(bench: Bench, todo: Job, tuned: Tuned, only: Sequence[int] | None = None) -> float:
    """The development score, where the run has one."""
    return as_first(bench.model, score.score(bench, todo, tuned, "dev", only).value) if todo.scored else 0.0


def _tell(todo: Job, line: str) -> None:
    say(f"{todo.arm.arm.name}: {line}", sys.stderr)


def recomputing(bench: Bench) -> AbstractContextManager[None]:
    """Within it layers are computed again in the backward pass, where --gradient-checkpointing asks for it."""
    return checkpointed(bench.model) if bench.plan.gradient_checkpointing else nullcontext()


def _loss(bench: Bench, rows: Sequence[Any]) -> Tensor:
    with recomputing(bench):
        return bench.task.loss(bench.model, rows, bench.tokenizer)
