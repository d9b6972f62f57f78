"""A few steps of the project's own loop on a decoder and labelled rows of the user's, measured on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.report.cells import Cell
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.inputs import classification_settings, data_settings, model_settings
from tunescope.reproduce.recipe import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.attachment.attached import Attached
    from tunescope.methods.artifact import Artifact, Spec
    from tunescope.tasks.prompts.templates import Ids
    from tunescope.tasks.task import Encoded
    from tunescope.trial.bench import Bench

TAKES = ("quick", "seeds", "model", "data", "template", "words", "test")
LENGTH = 24  # of every prefix
ROWS, QUICK = 100, 16  # test rows
FREE = (-math.inf, math.inf)


def settings(ask: Ask) -> Settings:
    """What every such recipe's numbers depend on. Raises UserError where the model or the rows are missing, or no good.

    One learning rate for each method and no choice by a development score: it is the same tensors, after so many steps,
    that are looked at, whatever they score.
    """
    if ask.model is None or ask.data is None:
        raise UserError(
            f"{ask.name} looks into a decoder that was trained on labelled rows, and needs both. "
            f"Type: tunescope reproduce {ask.name} --model MODEL --data ROWS.jsonl"
        )
    size: Settings = {"seeds": ask.seeds or (1 if ask.quick else 3), "rows": QUICK if ask.quick else ROWS}
    size |= {"rates": {"prefix": 1e-2, "lora": 5e-3}}
    model = model_settings(ask.model, ("decoder",), ask.name)
    return size | model | data_settings(ask.data) | classification_settings(ask, ask.data)


def bench_of(settings: Settings) -> Bench:
    from tunescope.trial.open import open_bench
    from tunescope.trial.plan import Plan
    from tunescope.trial.plan_fields import data_paths
    from tunescope.trial.train.settings import Settings as Training

    steps = settings["steps"]
    training = Training(
        steps=steps, batch_size=settings["batch_size"], eval_every=settings["every"], patience=steps, weight_decay=0.0
    )
    data = data_paths(settings["data"]) | ({"test": settings["test"]} if "test" in settings else {})
    task = {"kind": "classification"} | settings["task"]
    return open_bench(Plan(model=settings["model"], data=data, task=task, settings=training))


def tested_rows(bench: Bench, count: int, *, in_front: int) -> list[Encoded]:
    """The first test rows, as a model reads them that has a prefix.

    in_front: tokens of prose in front of each, 0 or more, behind what begins every text.
    """
    from tunescope.tasks.prompts.templates import edges
    from tunescope.trial.bench import room

    rows = bench.encoded("test", room=room(bench, LENGTH + in_front))[:count]
    if not in_front:
        return rows
    begin, windows = len(edges(bench.tokenizer)[0]), prose(bench, in_front)
    return [
        replace(row, input_ids=(*row.input_ids[:begin], *windows[i % len(windows)], *row.input_ids[begin:]))
        for i, row in enumerate(rows)
    ]


def prose(bench: Bench, length: int, count: int = 10**6) -> list[Ids]:
    """Stretches of `length` tokens of the prose that comes with the package, of which no two overlap.

    Raises UserError for a tokenizer that does not know its letters.
    """
    from tunescope.data.general_text import general_text
    from tunescope.tasks.windows import cut

    found = cut(general_text(), bench.tokenizer, length, count)
    if found.reason:
        raise UserError(
            f"This recipe reads English prose to {bench.plan.model}, and {found.reason}. Give a decoder of English."
        )
    return list(found.rows)


def answers(bench: Bench, rows: Sequence[Encoded]) -> dict[str, float]:
    """The accuracy of the rows, and the loss of their right words in nats, by what is attached now."""
    import torch

    from tunescope.tasks.answers.choices import all_scores
    from tunescope.tasks.task import labelled

    words = list(labelled(bench.task).word_ids(bench.tokenizer, bench.kind).values())
    scores = all_scores(bench.model, rows, words, bench.tokenizer)
    labels = torch.tensor([row.label for row in rows], device=scores.device)
    right = scores.gather(1, labels[:, None])
    return {"accuracy": float((scores.argmax(1) == labels).double().mean()), "loss": -float(right.mean())}


def short_run(
    bench: Bench, arm: str, what: Sequence[Spec | Artifact] | None, rate: float, seed: int
) -> tuple[Any, Callable[[Attached, Callable[[], None]], list[dict[str, Any]]]]:
    """A context manager with the arm attached, and what trains it there.

    what: is attached in the place of the arm's own specs. The function that is given back asks for a measurement every
    `eval_every` steps and leaves the tensors as they are after the last; it gives the curve of training losses.
    """
    from tunescope.comparison.arms import ready
    from tunescope.comparison.job import Job
    from tunescope.comparison.problem import attached
    from tunescope.trial.arm import Arm
    from tunescope.trial.specs import specs_at

    made = ready(Arm(arm, arm), bench)
    todo = Job("", made, (rate,) * len(made.specs), seed, bench.plan.settings.steps)
    entered = attached(bench, todo, specs_at(made, bench, (), seed) if what is None else what)
    return entered, lambda tuned, measure: _trained(bench, todo, tuned, measure)


def _trained(bench: Bench, todo: Any, tuned: Attached, measure: Callable[[], None]) -> list[dict[str, Any]]:
    from tunescope.comparison.problem import problem_of
    from tunescope.system import machine
    from tunescope.trial.train.loop import train

    measured: list[int] = []

    def later_is_better() -> float:
        tuned.eval()
        measure()
        tuned.train()
        measured.append(1)
        return float(len(measured))

    with machine.seeded(todo.seed):
        problem = replace(problem_of(bench, todo, tuned.train()), score=later_is_better, whole=None)
        curve = train(problem, bench.plan.settings, todo.seed).curve
    tuned.eval()
    return [{"step": point["step"], "loss": point["loss"]} for point in curve]


def cell(read: Callable[[Any], float], outcomes: Sequence[Any], bounds: tuple[float, float] = FREE) -> Cell:
    """What is read of every seed's piece; empty where these have no such number, or one that is not finite."""
    try:
        values = tuple(read(one) for one in outcomes)
    except (KeyError, IndexError):
        return Cell()
    return Cell(values, bounds=bounds) if all(map(math.isfinite, values)) else Cell()


def batch_of(bench: Bench, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """The model's inputs, padded on the right."""
    from tunescope.tasks.answers.batches import pad_id, padded

    ids, mask = padded(rows, pad_id(bench.tokenizer), bench.device, left=False)
    return {"input_ids": ids, "attention_mask": mask}
