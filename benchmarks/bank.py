"""Decoding of rows that each have their own LoRA or prefix, in one batch; the bare model is the floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tunescope as ts
from benchmarks.decoding import STEPS, decoder, text_before
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import MODELS, Scale
from tunescope.attachment.initial_artifacts import initialised
from tunescope.methods.artifact import Artifact

EVERY = ("attn.q", "attn.k", "attn.v", "attn.o", "ffn.in", "ffn.out")
CASES: dict[str, tuple[Any, ...]] = {  # what rows take in turn
    "a LoRA each on q, v": (ts.LoRA(rank=8),),
    "a LoRA each on all maps": (ts.LoRA(rank=8, sites=EVERY),),
    "a prefix of 20 each": (ts.Prefix(length=20),),
    "prefixes of 5 to 35": tuple(ts.Prefix(length=length) for length in (5, 15, 25, 35)),
    "a LoRA or a prefix": (ts.LoRA(rank=8), ts.Prefix(length=20)),
}
TARGETS = {"a LoRA each on q, v": 1.05, "a prefix of 20 each": 1.1}
PEFT = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"]}


def run(scale: Scale) -> Result:
    ratios = []
    for family in MODELS:
        steps, attached = {"bare": decoder(MODELS[family](scale), scale)}, []
        for case in CASES:
            tuned = banked(family, case, scale)
            attached.append(tuned)
            steps[case] = _decoder(tuned, scale)
        steps["peft"] = peft_decoder(family, scale)
        times = alternating(steps, scale.rounds)
        for case in CASES:
            target = TARGETS.get(case) if family == "gpt2" else None
            ratios.append(compared(f"{family}, {case}", case, "bare", times, target))
        ratios.append(compared(f"{family}, a LoRA each on {', '.join(PEFT[family])}", "peft", "bare", times))
    settings = {"rows": scale.rows_decoded, "tokens before": scale.tokens_before, "tokens a round": STEPS}
    return Result(
        ratios, [Check("largest difference of a logit from the row alone", _difference(scale), 1e-4)], settings
    )


def banked(family: str, case: str, scale: Scale) -> Any:
    """A model with as many artifacts as rows, each with tensors of its own, none of them at rest."""
    model = MODELS[family](scale)
    specs = CASES[case]
    members = {str(row): made(model, specs[row % len(specs)], row) for row in range(scale.rows_decoded)}
    return ts.attach(model, ts.Bank(members))


def made(model: Any, spec: Any, seed: int) -> list[Artifact]:
    artifacts = initialised(model, [spec], None, seed)
    for artifact in artifacts:
        draw = torch.Generator().manual_seed(seed)
        for name, value in artifact.tensors.items():
            artifact.tensors[name] = value + 0.01 * torch.randn(value.shape, generator=draw).to(value.device)
    return artifacts


def _decoder(tuned: Any, scale: Scale) -> Callable[[], None]:
    """STEPS tokens, one at a time, of every row behind its own text."""
    ids = text_before(tuned.model, scale)
    rows = [str(row) for row in range(len(ids))]
    with torch.no_grad():
        cache = tuned.model(input_ids=ids, use_cache=True, rows=rows).past_key_values

    def decode() -> None:
        with torch.no_grad(), tuned.rows(rows):
            for _ in range(STEPS):
                tuned.model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-STEPS)

    return decode


def peft_decoder(family: str, scale: Scale) -> Callable[[], None]:
    """peft's batch of several LoRAs; of prefixes it has none."""
    from peft import LoraConfig, get_peft_model

    model = MODELS[family](scale)
    ids = text_before(model, scale)
    names = [f"row{row}" for row in range(len(ids))]
    config = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=PEFT[family])
    wrapped = get_peft_model(model, config, adapter_name=names[0])
    for name in names[1:]:
        wrapped.add_adapter(name, config)
    wrapped.eval()
    with torch.no_grad():
        cache = wrapped(input_ids=ids, use_cache=True, adapter_names=names).past_key_values

    def decode() -> None:
        with torch.no_grad():
            for _ in range(STEPS):
                wrapped(input_ids=ids[:, :1], past_key_values=cache, use_cache=True, adapter_names=names)
        cache.crop(-STEPS)

    return decode


def _difference(scale: Scale) -> float:
    """Largest difference of a row's logits in the batch and alone, in float32, over two rows of each of two cases."""
    model = MODELS["llama"](scale)
    ids = text_before(model, scale)[:4]
    specs = [ts.LoRA(rank=8), ts.Prefix(length=20), ts.LoRA(rank=4), ts.Prefix(length=7)]
    members = {str(row): made(model, spec, row) for row, spec in enumerate(specs[: len(ids)])}
    with ts.attach(model, ts.Bank(members)), torch.no_grad():
        together = model(input_ids=ids, rows=list(members)).logits
    largest = 0.0
    for row, artifacts in enumerate(members.values()):
        with ts.attach(model, *artifacts), torch.no_grad():
            alone = model(input_ids=ids[row : row + 1]).logits[0]
        largest = max(largest, float((together[row] - alone).abs().max()))
    return largest
