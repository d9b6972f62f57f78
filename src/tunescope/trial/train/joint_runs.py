"""Several training runs in one pass of the model: each goes its own way, and only the losses are computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tunescope.trial.train.loop import Diverged, Part, Work, autocast
from tunescope.trial.train.state import State

Losses = Callable[[Mapping[str, list[int]]], Mapping[str, Tensor]]


def train_together(
    runs: Mapping[str, Work[State]], losses: Losses, device: torch.device, precision: str
) -> dict[str, State | Diverged]:
    """What each run comes to, by name. A run that stops early or diverges leaves the others going on.

    runs: `train.training` of each; losses: for the rows that each run asks for, its mean loss over the labelled tokens
    of those rows, all from one pass. A run's numbers are those of `train` alone, but for the rounding of the pass.
    """
    found: dict[str, State | Diverged] = {}
    waiting: dict[str, Part] = {}

    def go_on(name: str, value: float | None) -> None:
        try:
            waiting[name] = runs[name].send(value)  # type: ignore[arg-type]
        except StopIteration as done:
            found[name] = done.value
        except Diverged as problem:
            found[name] = problem

    for name in runs:
        go_on(name, None)
    while waiting:
        asked = dict(waiting)
        waiting.clear()
        with autocast(device, precision):
            made = losses({name: part.rows for name, part in asked.items()})
            weighted = {name: made[name] * part.weight for name, part in asked.items()}
        torch.stack(list(weighted.values())).sum().backward()  # type: ignore[no-untyped-call]
        for name, loss in weighted.items():
            go_on(name, loss.item())
    return found
