"""What may be asked of demonstrations on a task and a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.trial.chats import check_no_chat, check_turns
from tunescope.trial.demos import order
from tunescope.trial.demos.spec import Demos

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench


def check_demos(demos: Demos, bench: Bench, others: Sequence[Any]) -> None:
    """UserError for an option that has no effect on this task or model. others: the specs beside it in the arm."""
    from tunescope.methods.artifact import AttentionDelta

    task = bench.task
    check_turns(bench, str(demos))
    if demos.each and any(isinstance(one, AttentionDelta) for one in others):
        raise UserError(
            f"{demos}: every query has demonstrations of its own, and reweight is of the label words of one block in "
            "front of all; type it with demos:k=1"
        )
    needing = {
        "choose=balanced": demos.choose == "balanced",
        "order=entropy": demos.order == "entropy",
        "calibrate=true": demos.calibrate,
    }
    for option, asked in needing.items():
        if asked and not task.is_labelled:
            raise UserError(f"{demos}: {option} is about labels, and this task has none; drop it.")
    if demos.sets > 1 and not task.is_labelled:
        raise UserError(
            f"{demos}: sets averages the scores of labels, which neither answers that are written nor choices of a "
            "row's own are; drop it."
        )
    if task.needs_head is not None and (demos.tries or demos.calibrate):
        option = "calibrate=true" if demos.calibrate else f"order={demos.order}"
        raise UserError(f"{demos}: {option} reads the frozen model's answers, and an encoder has none; drop it.")
    if demos.order == "entropy":
        check_no_chat(bench, f"{demos}: order=entropy lets the model write rows of its own,")
    if demos.order == "entropy" and bench.kind != "decoder":
        raise UserError(f"{demos}: order=entropy lets the model write inputs of its own, for which it takes a decoder.")
    if demos.tries:
        order.check(demos, task)
