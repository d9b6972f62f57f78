"""Training step of a prefix of 50 and of LoRA where 10 of 64 positions carry a label: logits only there.

The floor, as peft does, computes logits at every position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.memory import megabytes
from benchmarks.tools.models import (
    IGNORED,
    Scale,
    floor_step,
    gpt2,
    labelled_step,
    peft_step,
    plain_step,
    text,
)

LABELLED = 10
TARGET = 0.75  # of peft's time
MEMORY = 0.4  # of peft's
MEMORY_ROUNDS = {"full": 3, "tiny": 1}
VARIANTS = ("floor", "tunescope", "peft")
RANK = 8


def cases() -> dict[str, tuple[Any, Any]]:
    """Case -> our method and peft's configuration of the same."""
    from peft import LoraConfig, PrefixTuningConfig

    return {
        "prefix of 50": (
            ts.Prefix(length=50),
            PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=50),
        ),
        f"LoRA of rank {RANK} on q, v": (
            ts.LoRA(rank=RANK),
            LoraConfig(task_type="CAUSAL_LM", r=RANK, target_modules=["c_attn"]),
        ),
    }


def run(scale: Scale) -> Result:
    ratios, checks = [], []
    for case, (spec, config) in cases().items():
        times = alternating(_steps(scale, spec, config), scale.rounds)
        ratios += [
            compared(f"gpt2, {case}", "tunescope", "peft", times, TARGET),
            compared(f"gpt2, {case}", "tunescope", "floor", times),
            compared(f"gpt2, {case}", "peft", "floor", times),
        ]
        name = f"{case}: largest difference of a gradient, over the largest gradient"
        checks.append(Check(name, _difference(scale, spec), 1e-4))
    taken = {
        variant: [megabytes("partial_labels", variant, scale.name == "tiny") for _ in range(MEMORY_ROUNDS[scale.name])]
        for variant in VARIANTS
    }
    ratios.append(compared("gpt2, prefix of 50", "tunescope", "peft", taken, MEMORY, "memory"))
    ratios.append(compared("gpt2, prefix of 50", "tunescope", "floor", taken, None, "memory"))
    settings = {"rows": scale.rows, "tokens": scale.tokens, "labelled positions of a row": LABELLED}
    note = "peft's LoRA stands on q, k and v, which are one map in GPT-2"
    return Result(ratios, checks, settings | {"note": note})


def step(variant: str, scale: Scale) -> Callable[[], None]:
    """The training step of "floor", "tunescope" or "peft" under a prefix of 50."""
    spec, config = cases()["prefix of 50"]
    return _steps(scale, spec, config, (variant,))[variant]


def _steps(scale: Scale, spec: Any, config: Any, variants: tuple[str, ...] = VARIANTS) -> dict[str, Callable[[], None]]:
    found = {}
    for variant in variants:
        model = gpt2(scale)
        ids, labels = _batch(scale, model)
        if variant == "floor":
            found[variant] = floor_step(model, ids, labels)
        elif variant == "peft":
            found[variant] = peft_step(config, model, ids, labels)
        else:
            tuned = ts.attach(model, spec).train()
            found[variant] = labelled_step(model, tuned.parameters, ids, labels)
    return found


def _batch(scale: Scale, model: Any) -> tuple[Tensor, Tensor]:
    ids = text(scale, model.config.vocab_size)
    labels = ids.clone()
    labels[:, :-LABELLED] = IGNORED
    return ids, labels


def _difference(scale: Scale, spec: Any) -> float:
    """Largest difference between the gradients with logits at the labels and with all, over the largest gradient."""
    model = gpt2(scale)
    ids, labels = _batch(scale, model)
    with ts.attach(model, spec) as tuned:
        tuned.train()
        found = []
        for make in (labelled_step, plain_step):
            make(model, tuned.parameters, ids, labels)()
            found.append(torch.cat([parameter.grad.flatten() for parameter in tuned.parameters()]))
    return float((found[0] - found[1]).abs().max() / found[1].abs().max())
