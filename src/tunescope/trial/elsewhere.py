"""A plan opened once more, in another process or on another machine: the same model and files, or an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tunescope.system import crew, files
from tunescope.trial.bench import Bench
from tunescope.trial.input_hashes import check_worker, input_hashes
from tunescope.trial.plan import Plan
from tunescope.trial.plan_fields import model_path
from tunescope.trial.plan_json import from_json, to_json


def left(bench: Bench) -> dict[str, Any]:
    """What `opened` takes, for jobs/run.json."""
    return {"plan": to_json(bench.plan), "model": model_path(bench.plan.model), "read": input_hashes(bench)}


def opened(run: Path, shared: Mapping[str, Any], share: float, opens: Callable[[Plan], Bench]) -> Bench:
    """In a worker: the bench of what `left` told, with the plan's threads. share: see `taken`.

    Raises:
        UserError: as `opens`, or a file is no longer what the run was begun with.
    """
    plan = taken(from_json(shared["plan"], run / "jobs" / "run.json"), shared["model"], share)
    bench = opens(replace(plan, device=own_device(plan.device, crew.place())))
    check_worker(bench, shared["read"], input_hashes(bench), files.SAME_COMMAND)
    return bench


def taken(plan: Plan, model: str, share: float) -> Plan:
    """The plan as this process does it. model: where it is. share: of the GPU's memory, which the process may take."""
    plan = replace(plan, model=model, device=plan.device.partition(":")[0])
    torch.set_num_threads(plan.threads)
    if share < 1 and plan.device == "cuda":
        torch.cuda.set_per_process_memory_fraction(share)
    return plan


def own_device(name: str, place: int) -> str:
    """Of several GPUs each worker takes one in turn, where none is named by its number."""
    count = torch.cuda.device_count()
    return f"cuda:{place % count}" if name == "cuda" and count > 1 else name
