"""Training step where every position carries a label: prefixes and LoRA, ours against peft's."""

from __future__ import annotations

from typing import Any

import tunescope as ts
from benchmarks.tools.measuring import Ratio, Result, alternating, compared
from benchmarks.tools.models import MODELS, Scale, peft_step, plain_step, text

TARGET = 1.03
RANK = 8
EVERY = ("attn.q", "attn.k", "attn.v", "attn.o", "ffn.in", "ffn.out")
MAPS = {
    "gpt2": (["c_attn"], ["c_attn", "c_proj", "c_fc"]),
    "llama": (
        ["q_proj", "v_proj"],
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    ),
}


def cases(family: str) -> dict[str, tuple[Any, Any]]:
    """Case -> our method and peft's configuration of the same."""
    from peft import LoraConfig, PrefixTuningConfig

    found: dict[str, tuple[Any, Any]] = {
        f"prefix of {length}": (
            ts.Prefix(length=length),
            PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=length),
        )
        for length in (10, 50, 200)
    }
    query_value, every = MAPS[family]
    for name, sites, maps in (
        ("LoRA on q, v", ("attn.q", "attn.v"), query_value),
        ("LoRA on all maps", EVERY, every),
    ):
        config = LoraConfig(task_type="CAUSAL_LM", r=RANK, target_modules=maps)
        found[name] = (ts.LoRA(rank=RANK, sites=sites), config)
    return found


def run(scale: Scale) -> Result:
    ratios = [
        measured(scale, family, case, spec, config)
        for family in MODELS
        for case, (spec, config) in cases(family).items()
    ]
    note = "on GPT-2 peft's LoRA stands on q, k and v as one map; ours on each by itself"
    return Result(ratios, (), {"rows": scale.rows, "tokens": scale.tokens, "rank": RANK, "note": note})


def measured(scale: Scale, family: str, case: str, spec: Any, config: Any) -> Ratio:
    models = {variant: MODELS[family](scale) for variant in ("tunescope", "peft")}
    ids = text(scale, models["peft"].config.vocab_size)
    tuned = ts.attach(models["tunescope"], spec).train()
    steps = {
        "tunescope": plain_step(models["tunescope"], tuned.parameters, ids, ids),
        "peft": peft_step(config, models["peft"], ids, ids),
    }
    times = alternating(steps, scale.rounds)
    return compared(f"{family}, {case}", "tunescope", "peft", times, TARGET)
