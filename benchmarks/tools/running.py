"""Runs a benchmark by name, prints its table and writes its result file."""

from __future__ import annotations

import gc
import importlib
import json
import pkgutil
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks.tools.measuring import Check, Ratio, Result
from benchmarks.tools.where import CPU_ONLY, device

RESULTS = Path(__file__).parents[1] / "results"


def names() -> list[str]:
    """The benchmarks there are for the device: the files of the folder."""
    found = [one.name for one in pkgutil.iter_modules(benchmarks.__path__) if not one.ispkg and one.name[0] != "_"]
    return found if device().type == "cpu" else [name for name in found if name not in CPU_ONLY]


def run(name: str, *, tiny: bool, folder: Path | None = None) -> dict[str, Any]:
    """What the result file says. A tiny run is a trial of the benchmark itself: it writes no file in RESULTS."""
    import torch

    from benchmarks.tools.models import FULL, TINY

    torch.set_num_threads(1)
    module = importlib.import_module(f"benchmarks.{name}")
    gc.collect()
    gc.freeze()  # what is imported lasts, and to look through it before every step that is timed takes longer than many
    started = time.perf_counter()
    result: Result = module.run(TINY if tiny else FULL)
    page = {
        "version": 1,
        "name": name,
        "about": (module.__doc__ or "").strip().partition("\n")[0],
        "command": f"OMP_NUM_THREADS=1 python -m benchmarks {name}" + (" --tiny" if tiny else ""),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        **_where(),
        "settings": dict(result.settings),
        "skipped": result.skipped,
        "ratios": [_rounded(asdict(ratio) | {"met": ratio.met}) for ratio in result.ratios],
        "checks": [asdict(check) | {"met": check.met} for check in result.checks],
    }
    print(table(name, result), flush=True)
    if not tiny or folder is not None:
        folder = folder or RESULTS / device().type if device().type != "cpu" else folder or RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(page, indent=1) + "\n")
    return page


def table(name: str, result: Result) -> str:
    """For reading: one line a ratio, one a check."""
    if result.skipped:
        return f"{name}: skipped, {result.skipped}"
    lines = [name, f"  {'case':34} {'what':31} {'own':>10}  {'ratio':>6} {'min - max':>14}  target"]
    lines += [_ratio_line(ratio) for ratio in result.ratios]
    lines += [_check_line(check) for check in result.checks]
    return "\n".join(lines)


def _ratio_line(row: Ratio) -> str:
    unit = {"time": "ms", "wall": "ms", "memory": "MB"}[row.quantity]
    what = f"{row.variant} / {row.baseline} {row.quantity}"
    spread = f"{row.low:.2f} - {row.high:.2f}"
    return f"  {row.case:34} {what:31} {row.value:7.0f} {unit}  {row.ratio:6.2f} {spread:>14}  {_verdict(row)}"


def _check_line(check: Check) -> str:
    return f"  {check.name}: {check.value:.3g}  {_verdict(check)}"


def _verdict(row: Ratio | Check) -> str:
    return "" if row.at_most is None else f"<= {row.at_most:g} {'met' if row.met else 'MISSED'}"


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


def _where() -> dict[str, Any]:
    """Versions and machine, without names of hosts or people."""
    from importlib.metadata import version

    import torch

    from tunescope.system.machine import describe, versions

    about = describe(device(), torch.get_num_threads())
    return {"versions": versions() | {"peft": version("peft")}, "machine": about}
