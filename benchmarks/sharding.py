"""Several processes with one model between them, against one process: the largest difference of what they train."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from benchmarks.tools import sharded
from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale
from benchmarks.tools.where import device
from tunescope.system import ranks

WORLDS = (2, 4)
BOUND = 1e-6


def run(scale: Scale) -> Result:
    if device().type != "cpu":
        return Result(skipped="it is about processes on a CPU")
    worlds, arms = (WORLDS, sharded.ARMS) if scale.name == "full" else (WORLDS[:1], {"lora": sharded.ARMS["lora"]})
    alone = {name: sharded.trained(arm, "") for name, arm in arms.items()}
    with tempfile.TemporaryDirectory() as folder:
        found = {world: _trained(world, list(arms), Path(folder) / f"{world}.safetensors") for world in worlds}
    checks = [
        Check(f"{name}; {order}; {world} processes", _largest(found[world], alone[name], f"{name}/{order}/"), BOUND)
        for name, order, world in product(arms, sharded.ORDERS, worlds)
    ]
    settings = {"model": "a Llama of two layers in float32", "steps": sharded.STEPS, "rows": sharded.ROWS}
    return Result(checks=checks, settings=settings | {"optimizer": "AdamW", "rate": sharded.RATE, "arms": arms})


def _trained(world: int, arms: list[str], path: Path) -> dict[str, Tensor]:
    """By arm, order and name, what the first of so many processes has at the end; all have the same."""
    code = ranks.begun(world, ["-m", "benchmarks.tools.sharded", str(path), *arms])
    assert code == 0, f"{world} processes ended with {code}"
    return load_file(path)


def _largest(found: dict[str, Tensor], alone: dict[str, Tensor], prefix: str) -> float:
    return max(float((found[f"{prefix}{name}"] - value).abs().max()) for name, value in alone.items())
