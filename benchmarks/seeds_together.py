"""Seeds of one small model trained together by `torch.vmap`, against one after the other in one process."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import Scale
from tunescope.lab.worlds.lessons import digits, vocabulary
from tunescope.lab.worlds.models import Shape, gpt2
from tunescope.lab.worlds.world import World

SEEDS = 4


def run(scale: Scale) -> Result:
    world = World()
    models = [gpt2(Shape(), vocabulary(world), 2 * world.length, seed) for seed in range(SEEDS)]
    for model in models:
        model.set_attn_implementation("eager")  # vmap has no rule for the fused kernel
    ids = digits(world, ("ascending",), "train", 64, seed=0)
    given = {"use_cache": False, "position_ids": torch.arange(ids.shape[1] - 1)[None], "attention_mask": causal(ids)}

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], model: Any) -> Tensor:
        logits = functional_call(model, (parameters, buffers), kwargs=given | {"input_ids": ids[:, :-1]}).logits
        return F.cross_entropy(logits[:, world.length - 1 :].flatten(0, 1), ids[:, world.length :].flatten())

    parameters, buffers = stack_module_state(models)
    shell = copy.deepcopy(models[0]).to("meta")
    stacked = vmap(grad(lambda p, b: loss(p, b, shell)), randomness="error")
    alone = grad(loss)
    states = [(dict(model.named_parameters()), dict(model.named_buffers()), model) for model in models]
    runs = {"together": lambda: stacked(parameters, buffers), "one by one": lambda: [alone(*one) for one in states]}
    times = alternating(runs, scale.rounds)
    both = [stacked(parameters, buffers)["lm_head.weight"], torch.stack([alone(*s)["lm_head.weight"] for s in states])]
    check = Check("largest difference of a gradient", float((both[0] - both[1]).abs().max()), 1e-5)
    case = f"gpt2 of 1 layer and width 96, {SEEDS} seeds, 64 rows of {ids.shape[1]}"
    return Result([compared(case, "together", "one by one", times)], [check], {"seeds": SEEDS})


def causal(ids: Tensor) -> Tensor:
    """(1, 1, length, length), to add to scores."""
    length = ids.shape[1] - 1
    sees = torch.ones(length, length, dtype=torch.bool).tril()
    return torch.zeros(1, 1, length, length).masked_fill(~sees, torch.finfo(torch.float32).min)
