"""What a run was begun with beside its question and its files: versions, and the precision that `auto` came to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tunescope.errors import UserError
from tunescope.system import machine, run_folder
from tunescope.trial.bench import Bench

PACKAGES = ("tunescope", "torch", "transformers")


def versions(folder: Path) -> dict[str, str]:
    """Package -> its version, as the folder's run was begun; of a run that did not keep them none."""
    here = {name: version for name, version in machine.versions().items() if name in PACKAGES}
    kept = _config(folder)
    return here if kept is None else dict(kept.get("versions") or {})


def other_versions(folder: Path) -> str:
    """That the run goes on with other versions than it was begun with, in a line; "" where it does not."""
    before, now = versions(folder), machine.versions()
    other = [name for name in before if before[name] != now.get(name)]
    if not other:
        return ""
    old, new = (", ".join(f"{name} {told.get(name)}" for name in other) for told in (before, now))
    return f"{folder} was begun with {old}, and goes on with {new}"


def keep_precision(bench: Bench, folder: Path) -> str:
    """Give the bench's plan what `auto` came to when the run was begun, else what it comes to here.

    Returns a line where these differ, or "". Raises UserError where this GPU cannot compute in that of the run.
    """
    if bench.plan.settings.precision != "auto":
        return ""
    now = machine.precision_on(bench.device, "auto")
    before = (_config(folder) or {}).get("chosen_precision") or now
    bench.cut_to(replace(bench.plan, chosen_precision=before))
    if before == now:
        return ""
    told = f"--precision auto came to {before} where {folder} was begun, and comes to {now} on this device"
    if before == "bfloat16" and bench.device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise UserError(
            f"{told}, which cannot compute in {before}. Go on where it was begun, or begin anew with "
            f"--precision {now} and another --out."
        )
    return f"{told}; the run goes on in {before}"


def _config(folder: Path) -> dict[str, Any] | None:
    return run_folder.read_config(folder) if (folder / "config.json").exists() else None
