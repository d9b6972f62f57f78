"""A piece of a recipe's work: what a process does of it, and where its outcome lies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tunescope.reproduce.recipe import Recipe, Settings, find
from tunescope.system import crew, files, sealed_json
from tunescope.system.kernels import keep_few

if TYPE_CHECKING:
    from tunescope.lab.worlds.world_cache import Pretraining

LASTING = ("done", "diverged", "refused")  # statuses that another attempt would not change


def status(arms: Iterable[str]) -> str:
    """That of a piece of several arms: of one that another attempt might change, else "done"."""
    return next((one for one in arms if one not in LASTING), "done")


def path(out: Path, name: str) -> Path:
    """Where the outcome of a piece lies that lasts."""
    return out / "units" / f"{name}.json"


def passing(path: Path) -> Path:
    """Where the outcome of a piece lies that failed, and is tried again by the next go."""
    return path.with_suffix(".failed.json")


def single(share: float = 1.0) -> None:
    """One thread a process: small models gain nothing from more. Of several GPUs each process takes one in turn.

    share: of the GPU's memory, which it may take.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_few()
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    if (gpus := torch.cuda.device_count()) > 1:
        torch.cuda.set_device(crew.place() % gpus)
    if share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)
    logging.disable_progress_bar()


def world(world: Pretraining[Any]) -> str:
    """Have a model made that pieces begin with, and say so."""
    from tunescope.lab.worlds.world_cache import pretrained

    started = time.monotonic()
    pretrained(world)
    return f"{world} ({time.monotonic() - started:.0f} s)"


def unit(name: str, settings: Settings, unit: dict[str, Any], path: Path) -> str:
    """Do a piece, and say what came of it."""
    started, worked = time.monotonic(), time.process_time()
    recipe = find(name)
    folder, resumes = path.with_suffix(""), bool(getattr(recipe, "RESUMES", False))
    gone_on = {"gone_on": True} if resumes and folder.exists() else {}
    outcome = recipe.work(settings, unit, *([folder] if resumes or compares(recipe) else [])) | gone_on
    outcome["seconds"] = round(time.monotonic() - started, 1)
    outcome["cpu_seconds"] = round(time.process_time() - worked, 1)
    lasts = outcome.get("status", "done") in LASTING
    files.remove(passing(path))  # of an earlier go
    sealed_json.put(path if lasts else passing(path), outcome)
    if resumes:
        files.remove(folder)
    return f"{came_of(unit, outcome)} ({outcome['seconds']:.0f} s)"


def came_of(unit: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    """A piece by what distinguishes it, and of a comparison the mean of each score over seeds, or why there is none."""
    means = [f"{metric} {fmean(values):.3f}" for metric, values in outcome.get("scores", {}).items() if values]
    ending = ", ".join(means) or outcome.get("reason", "")
    return f"{named(unit)}: {ending}" if ending else named(unit)


def named(unit: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in unit.items() if value not in (None, ""))


def compares(recipe: Recipe) -> bool:
    """Whether its pieces are comparisons, each in a folder of its own, on the device that these take."""
    return bool(getattr(recipe, "KEEPS", False))
