"""Decoding under a prefix through transformers' cache: the prefix is shared by the rows, not copied into each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import MODELS, Scale
from benchmarks.tools.where import device

TARGETS = {200: 1.1, 1000: 1.2}
STEPS = 4  # tokens decoded a round; the cache is cropped again afterwards


def run(scale: Scale) -> Result:
    ratios = []
    for family in MODELS:
        steps, attached = {"bare": decoder(MODELS[family](scale), scale)}, []
        for length in TARGETS:
            tuned = ts.attach(MODELS[family](scale), ts.Prefix(length=length))
            attached.append(tuned)  # it detaches when it is let go of
            steps[f"tunescope {length}"] = decoder(tuned.model, scale)
            steps[f"peft {length}"] = peft_decoder(MODELS[family](scale), length, scale)
        times = alternating(steps, scale.rounds)
        for length, target in TARGETS.items():
            case = f"{family}, prefix of {length}"
            asked = target if family == "gpt2" else None
            ratios += [
                compared(case, f"tunescope {length}", "bare", times, asked),
                compared(case, f"peft {length}", "bare", times),
            ]
    settings = {"rows": scale.rows_decoded, "tokens before": scale.tokens_before, "tokens a round": STEPS}
    return Result(ratios, [Check("largest difference of a logit", _difference(scale), 1e-3)], settings)


def decoder(model: Any, scale: Scale) -> Callable[[], None]:
    """STEPS tokens, one at a time, each row behind its own text; only the prefix, if any, differs."""
    ids = text_before(model, scale)
    with torch.no_grad():
        cache = model(input_ids=ids, use_cache=True).past_key_values
    return _decode(model, cache, ids)


def peft_decoder(model: Any, length: int, scale: Scale) -> Callable[[], None]:
    """As peft's generate does: the prefix enters the cache of every row, then the base model goes on."""
    from peft import PrefixTuningConfig, get_peft_model

    ids = text_before(model, scale)
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=length)
    wrapped = get_peft_model(model, config).eval()
    with torch.no_grad():
        cache = wrapped(input_ids=ids, use_cache=True).past_key_values
    return _decode(model, cache, ids)


def _decode(model: Any, cache: Any, ids: torch.Tensor) -> Callable[[], None]:
    token = ids[:, :1]

    def decode() -> None:
        with torch.no_grad():
            for _ in range(STEPS):
                model(input_ids=token, past_key_values=cache, use_cache=True)
        cache.crop(-STEPS)

    return decode


def text_before(model: Any, scale: Scale) -> torch.Tensor:
    shape = (scale.rows_decoded, scale.tokens_before)
    return torch.randint(model.config.vocab_size, shape, generator=torch.Generator().manual_seed(1)).to(device())


def _difference(scale: Scale) -> float:
    """Largest difference between a step's logits and those of all the text in one pass, under a prefix of 200."""
    model = MODELS["gpt2"](scale)
    ids = text_before(model, scale)[:4]
    with ts.attach(model, ts.Prefix(length=200)), torch.no_grad():
        whole = model(input_ids=ids).logits[:, -1]
        cache = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
        stepped = model(input_ids=ids[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    return float((whole - stepped).abs().max())
