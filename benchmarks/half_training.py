"""Training in bfloat16 on a CPU: attention's own forward and backward at several lengths, and a whole step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import Scale, gpt2, text
from benchmarks.tools.where import device
from tunescope.attachment.attention.function import SHORT, attention
from tunescope.attachment.attention.reach import quick_to_train

LENGTHS = (32, 64, 128, 256, 512)
WIDTH = 64  # of a head
TIMES = 4  # in a measurement, which is short


def run(scale: Scale) -> Result:
    if device().type != "cpu":
        return Result(skipped="it is about a CPU")
    ratios, difference = [], 0.0
    for length in LENGTHS if scale.name == "full" else (8, SHORT + 8):
        given = _given(scale, length)
        ours, torchs = _ours(given), _torchs(given)
        difference = max(difference, float((ours() - torchs()).abs().max()))
        times = alternating({"tunescope": _repeated(ours), "torch": _repeated(torchs)}, scale.rounds)
        target = 1.0 if length <= SHORT else None
        ratios.append(compared(f"attention over {length} tokens in bfloat16", "tunescope", "torch", times, target))
    steps = {"tunescope": _step(scale, quick=True), "torch": _step(scale, quick=False)}
    times = alternating(steps, scale.rounds)
    ratios.append(compared("gpt2, LoRA on q, v, a step in bfloat16", "tunescope", "torch", times, 1.0))
    settings = {"rows": scale.rows, "tokens": scale.tokens, "heads": scale.gpt2[2], "width of a head": WIDTH}
    return Result(ratios, [Check("largest difference of a query's gradient", difference, 0.05)], settings)


def _given(scale: Scale, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key and value (rows, heads, length, width), and the causal mask."""
    draw = torch.Generator().manual_seed(length)
    shape = (scale.rows, scale.gpt2[2], length, WIDTH)
    query, key, value = (torch.randn(shape, generator=draw).bfloat16().requires_grad_() for _ in range(3))
    return query, key, value, torch.ones(1, 1, length, length, dtype=torch.bool).tril()


def _ours(given: tuple[Tensor, Tensor, Tensor, Tensor]) -> Callable[[], Tensor]:
    module = nn.Module()

    def both() -> Tensor:
        out, _ = attention(module, *given)
        return torch.autograd.grad(out.sum(), given[:3])[0]

    return both


def _torchs(given: tuple[Tensor, Tensor, Tensor, Tensor]) -> Callable[[], Tensor]:
    query, key, value, mask = given

    def both() -> Tensor:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return torch.autograd.grad(out.sum(), given[:3])[0]

    return both


def _repeated(run: Callable[[], Any]) -> Callable[[], None]:
    def several() -> None:
        for _ in range(TIMES):
            run()

    return several


def _step(scale: Scale, *, quick: bool) -> Callable[[], None]:
    model = gpt2(scale)
    ids = text(scale, model.config.vocab_size)
    tuned = ts.attach(model, ts.LoRA(rank=8)).train()

    def step() -> None:
        for parameter in tuned.parameters():
            parameter.grad = None
        with quick_to_train(model, "bfloat16") if quick else nullcontext(), torch.autocast("cpu", torch.bfloat16):
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    return step
