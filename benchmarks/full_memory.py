"""Full tuning with AdamW on a CPU, in place and with a change beside the weights: private bytes a parameter."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from typing import Any

import torch
from transformers import AutoModelForCausalLM

import tunescope as ts
from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.memory import megabytes
from benchmarks.tools.models import Scale, llama
from benchmarks.tools.where import device

EXPECTED = {  # bytes a parameter: number, gradient and two moments, and beside them
    "float32, in place": 16,
    "float32, a change": 20,  # the sum; the weights are pages of the file
    "bfloat16, in place": 18,  # a copy to compute with
    "bfloat16, a change": 18,  # the sum, likewise
}
WITHIN = 1.05
ROWS, TOKENS, STEPS = 1, 8, 2


def run(scale: Scale) -> Result:
    if device().type != "cpu":
        return Result(skipped="it is about pages of a file, which a CPU computes with")
    count = sum(value.numel() for value in llama(scale).parameters())
    is_tiny = scale.name != "full"  # of which other things than parameters take most
    found = {
        name: megabytes("full_memory", name, is_tiny, returned=True, what="private") * 2**20 / count
        for name in EXPECTED
    }
    loose = 1e9 if is_tiny else WITHIN
    checks = [Check(name, round(found[name], 2), loose * EXPECTED[name]) for name in EXPECTED]
    settings = {"parameters": count, "rows": ROWS, "tokens": TOKENS, "expected": EXPECTED}
    return Result(checks=checks, settings=settings)


def held(variant: str, scale: Scale) -> Any:
    """A model of a folder after two updates, with the gradients of the second, and what has trained it."""
    dtype, way = variant.split(", ")
    with tempfile.TemporaryDirectory() as folder:
        llama(scale).to(getattr(torch, dtype)).save_pretrained(folder)
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    tuned = ts.attach(model.eval(), ts.Full())
    standing = tuned.in_place() if way == "in place" else nullcontext()
    standing.__enter__()
    optimizer = torch.optim.AdamW(tuned.train().parameters(), lr=1e-5, weight_decay=0.0)
    ids = torch.arange(ROWS * TOKENS).view(ROWS, TOKENS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
    return tuned, standing, optimizer
