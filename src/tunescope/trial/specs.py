"""Demonstrations in front of an arm's methods, and where their label words are for what acts on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.methods.artifact import Spec
from tunescope.tasks.task import labelled
from tunescope.trial import questions
from tunescope.trial.demos import draw, start

if TYPE_CHECKING:
    from tunescope.tasks.task import Task
    from tunescope.trial.arm import Ready
    from tunescope.trial.bench import Bench


def specs_at(state: Ready, bench: Bench, rows: tuple[int, ...], seed: int) -> tuple[Any, ...]:
    """The specs to attach, with these training rows solved in front where the arm has demonstrations.

    seed: draws the rows that a prefix or a soft prompt begins as.
    """
    task = questions.asked(state, bench)
    before, specs = with_demonstrations(bench, task, rows, state.specs)
    specs = start.begun(specs, bench, seed, task)
    return (*before, *specs) if state.in_front else specs


def with_demonstrations(
    bench: Bench, task: Task, rows: tuple[int, ...], specs: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The demonstrations, and the specs behind them: what acts on label words is told where."""
    from tunescope.methods.artifact import AttentionDelta
    from tunescope.methods.contexts.text import Text

    if not rows:
        return (), specs
    before = (Text(text=draw.text(bench, task, rows)),)
    if not any(isinstance(spec, AttentionDelta) and not spec.anchors for spec in specs):
        return before, specs
    anchors = _anchors(bench, rows)
    return before, tuple(_with_anchors(spec, anchors) for spec in specs)


def _anchors(bench: Bench, rows: tuple[int, ...]) -> tuple[str, ...]:
    """Where the label words of the demonstrations are."""
    from tunescope.tasks.prompts.spans import spans

    if not bench.task.is_labelled:
        raise UserError("reweight acts on the label words of demonstrations, and only a classification has them.")
    shown = [labelled(bench.task).demonstrated([bench.splits.train[index]], 1, 0)[0] for index in rows]
    return spans(bench.tokenizer, shown, bench.task.begins).anchors


def _with_anchors(spec: Spec, anchors: tuple[str, ...]) -> Spec:
    """A spec that acts on label words, told where they are, unless that was typed."""
    from tunescope.methods.artifact import AttentionDelta

    return replace(spec, anchors=anchors) if isinstance(spec, AttentionDelta) and not spec.anchors else spec  # type: ignore[type-var]
