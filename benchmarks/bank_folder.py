"""A bank of two thousand artifacts in a folder: what opening it, a first use and a bounded memory cost."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tunescope as ts
from benchmarks.bank import made
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.models import Scale, llama, text
from benchmarks.tools.where import device
from tunescope.system.machine import memory_meter

ARTIFACTS = {"full": 2000, "tiny": 40}
HOT = 64 * 2**20  # bytes that may stay at hand
BATCH = 16.0  # megabytes that a batch may have in use beyond that


def run(scale: Scale) -> Result:
    model, many = llama(scale), ARTIFACTS[scale.name]
    ids = text(scale, model.config.vocab_size)
    with tempfile.TemporaryDirectory() as place:
        bytes_each = _written(model, Path(place), many)
        start = time.perf_counter()
        bank = ts.Bank.folder(place, hot=HOT)
        opened = time.perf_counter() - start
        names = list(bank)
        with ts.attach(model, bank) as tuned, torch.no_grad():
            first = [names[at : at + len(ids)] for at in range(len(ids), many, len(ids))]
            tuned.model(input_ids=ids, rows=[None] * len(ids))
            before = _resident()
            for some in first:
                tuned.model(input_ids=ids[: len(some)], rows=some)
            grown = _resident() - before
            steps = {
                "again": _asking(tuned, ids, iter(lambda: names[: len(ids)], None)),
                "first": _asking(tuned, ids, iter(first)),
                "bare": _asking(tuned, ids, iter(lambda: [None], None)),
            }
            times = alternating(steps, scale.rounds)
    ratios = [
        compared("llama, rows that each have a LoRA for the first time", "first", "again", times),
        compared("llama, rows that each have a LoRA again", "again", "bare", times),
    ]
    checks = [
        Check(f"seconds to open a folder of {many:,}", opened, 5.0),
        Check(f"megabytes more after {many:,} were used once each, {HOT >> 20} allowed", grown, HOT / 2**20 + BATCH),
    ]
    settings = {"rows": len(ids), "tokens": ids.shape[1], "artifacts": many, "bytes each": bytes_each}
    return Result(ratios, checks, settings)


def _written(model: Any, place: Path, many: int) -> int:
    for seed in range(many):
        ts.save(place / f"customer{seed:05}", made(model, ts.LoRA(rank=8), seed), model=model)
    return sum(path.stat().st_size for path in (place / "customer00000").iterdir())


def _resident() -> float:
    """Megabytes of this process, freed ones given back."""
    memory_meter(device())
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _asking(tuned: Any, ids: Any, names: Any) -> Callable[[], None]:
    def ask() -> None:
        some = next(names)
        tuned.model(input_ids=ids, rows=some * (len(ids) // len(some)))

    return ask
