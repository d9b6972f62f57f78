"""Optimizers with one learning rate a parameter, and schedules as functions of the step."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.trial.train.settings import OPTIMIZERS, SCHEDULES


def make(
    name: str, parameters: Mapping[str, Tensor], rates: Mapping[str, float], weight_decay: float
) -> torch.optim.Optimizer:
    """An optimizer whose groups remember their highest rate as `peak`."""
    peaks = sorted(set(rates.values()))
    groups = [
        {"params": [leaf for key, leaf in parameters.items() if rates[key] == peak], "lr": peak, "peak": peak}
        for peak in peaks
    ]
    if name == "adamw":
        return torch.optim.AdamW(groups, weight_decay=weight_decay)
    if name == "adafactor":  # with a fixed rate, as prompt tuning uses it
        from transformers.optimization import Adafactor

        adafactor: torch.optim.Optimizer = Adafactor(
            groups, lr=peaks[0], relative_step=False, scale_parameter=False, weight_decay=weight_decay
        )
        return adafactor
    raise UserError(f"optimizer {name!r} is not known; it is one of: {', '.join(OPTIMIZERS)}.")


def factor(schedule: str, step: int, steps: int, warmup: float) -> float:
    """The share of the highest rate used at `step` (from 0); `warmup` is a share of `steps`, rising to 1.

    After it: constant stays, linear and cosine fall and would reach 0 at `steps`.
    """
    rise = round(warmup * steps)
    if step < rise:
        return (step + 1) / (rise + 1)
    done = (step - rise) / max(1, steps - rise)
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1.0 - done
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * done))
    raise UserError(f"schedule {schedule!r} is not known; it is one of: {', '.join(SCHEDULES)}.")
