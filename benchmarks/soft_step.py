"""Training step of a soft prompt of 200 tokens: the prompt is run once per batch, not once per row.

The floor is the bare frozen model's forward and backward for the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.memory import megabytes
from benchmarks.tools.models import IGNORED, MODELS, Scale, floor_step, gpt2, peft_step, plain_step, text

LENGTH = 200
TIME, MEMORY = 1.4, 1.4
MEMORY_ROUNDS = {"full": 3, "tiny": 1}


def step(variant: str, scale: Scale, family: str = "gpt2") -> Callable[[], None]:
    """The training step of "floor", "tunescope" or "peft", on a model of its own."""
    from peft import PromptTuningConfig

    model = MODELS[family](scale)
    ids = text(scale, model.config.vocab_size)
    if variant == "floor":
        return floor_step(model, ids, ids)
    if variant == "peft":
        return peft_step(PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=LENGTH), model, ids, ids)
    tuned = ts.attach(model, ts.Soft(length=LENGTH)).train()
    return plain_step(model, tuned.parameters, ids, ids)


def run(scale: Scale) -> Result:
    ratios = []
    for family in MODELS:
        steps = {variant: step(variant, scale, family) for variant in ("floor", "tunescope", "peft")}
        times = alternating(steps, scale.rounds)
        case = f"{family}, soft prompt of {LENGTH}"
        target = TIME if family == "gpt2" else None
        ratios += [
            compared(case, "tunescope", "floor", times, target),
            compared(case, "peft", "floor", times),
        ]
    taken = {
        variant: [megabytes("soft_step", variant, scale.name == "tiny") for _ in range(MEMORY_ROUNDS[scale.name])]
        for variant in ("floor", "tunescope", "peft")
    }
    case = f"gpt2, soft prompt of {LENGTH}"
    ratios += [
        compared(case, "tunescope", "floor", taken, MEMORY, "memory"),
        compared(case, "peft", "floor", taken, None, "memory"),
    ]
    settings = {"length": LENGTH, "rows": scale.rows, "tokens": scale.tokens, "logits": "at every position"}
    largest, relative = _difference(scale)
    checks = [
        Check("largest difference of a gradient", largest, 1e-5),
        Check("the same over the largest gradient", relative, 1e-4),
    ]
    return Result(ratios, checks, settings)


def _difference(scale: Scale) -> tuple[float, float]:
    """The prompt's gradient against that of the prompt in front of every row's embeddings, in float32.

    Largest absolute difference, and the same as a share of the largest entry.
    """
    model = gpt2(scale)
    ids = text(scale, model.config.vocab_size)
    with ts.attach(model, ts.Soft(length=LENGTH)) as tuned:
        (prompt,) = tuned.train().parameters()
        plain_step(model, tuned.parameters, ids, ids)()
        ours = prompt.grad
    assert ours is not None
    literal = _literal_gradient(model, prompt.detach(), ids)
    largest = (ours - literal).abs().max()
    return float(largest), float(largest / literal.abs().max())


def _literal_gradient(model: Any, prompt: Tensor, ids: Tensor) -> Tensor:
    prompt = prompt.clone().requires_grad_()
    rows = torch.cat([prompt.expand(len(ids), -1, -1), model.get_input_embeddings()(ids)], 1)
    labels = torch.cat([ids.new_full((len(ids), len(prompt)), IGNORED), ids], 1)
    labels[:, len(prompt)] = IGNORED  # nothing predicts the text's first token where the prompt is attended to only
    model(inputs_embeds=rows, labels=labels, use_cache=False).loss.backward()
    assert prompt.grad is not None
    return prompt.grad
