"""Training step of a prefix of 200 made by a network: the network runs once a step, not once a row."""

from __future__ import annotations

from typing import Any

import torch

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import MODELS, Scale, floor_step, gpt2, peft_step, plain_step, text

LENGTH, TARGET = 200, 1.1


def run(scale: Scale) -> Result:
    from peft import PrefixTuningConfig

    ratios = []
    for family in MODELS:
        models: dict[str, Any] = {name: MODELS[family](scale) for name in ("floor", "tunescope", "without", "peft")}
        ids = text(scale, models["floor"].config.vocab_size)
        width = models["floor"].get_input_embeddings().weight.shape[1]
        config = PrefixTuningConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=LENGTH, prefix_projection=True, encoder_hidden_size=width
        )
        tuned = {
            "tunescope": ts.attach(models["tunescope"], ts.Prefix(length=LENGTH, mlp=width)).train(),
            "without": ts.attach(models["without"], ts.Prefix(length=LENGTH)).train(),
        }
        steps = {name: plain_step(models[name], one.parameters, ids, ids) for name, one in tuned.items()}
        steps |= {"floor": floor_step(models["floor"], ids, ids), "peft": peft_step(config, models["peft"], ids, ids)}
        times = alternating(steps, scale.rounds)
        case = f"{family}, prefix of {LENGTH} by a network"
        ratios += [
            compared(case, "tunescope", "floor", times, TARGET if family == "gpt2" else None),
            compared(case, "peft", "floor", times),
            compared(f"{family}, prefix of {LENGTH} without one", "without", "floor", times),
        ]
    settings = {"rows": scale.rows, "tokens": scale.tokens, "network": "one layer of the model's width"}
    return Result(ratios, [Check("largest difference of a gradient", _difference(scale), 1e-5)], settings)


def _difference(scale: Scale) -> float:
    """The network's gradient against that of the same keys and values, folded first, through torch's own chain."""
    model = gpt2(scale)
    ids = text(scale, model.config.vocab_size)[:2]
    spec = ts.Prefix(length=7, mlp=16)
    with ts.attach(model, spec) as tuned:
        plain_step(model, tuned.train().parameters, ids, ids)()
        artifact = tuned.artifacts[0]
        ours = {name: value.grad for name, value in artifact.tensors.items()}
    tensors = {name: value.detach().clone().requires_grad_() for name, value in artifact.tensors.items()}
    folded = spec.fold(tensors)
    direct = {name: value.detach().clone().requires_grad_() for name, value in folded.items()}
    with ts.attach(model, ts.Artifact(ts.Prefix(length=7), direct)) as tuned:
        plain_step(model, tuned.train().parameters, ids, ids)()
    torch.autograd.backward(list(folded.values()), [direct[name].grad for name in folded])
    return max(float((ours[name] - value.grad).abs().max()) for name, value in tensors.items())  # type: ignore[operator]
