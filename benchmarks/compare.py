"""`tunescope compare` of five methods, three rates and three seeds on a tiny model, against a script with peft.

Both run as a person would run them, with all cores: wall time of whole processes. The script runs the whole grid; the
command tries the rates at one seed, and runs the chosen one at all.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.tools.comparing import ARMS, SEEDS
from benchmarks.tools.measuring import Check, Result, compared
from benchmarks.tools.models import Scale
from tunescope.lab.demo import prepare

SKILL, BATCH = "descending", 32
TARGET = 0.4


@dataclass(frozen=True)
class Extent:
    """How much is compared: updates of a run, rows of each part, the first methods, seeds; and how often."""

    steps: int
    rows: int
    methods: int
    seeds: int
    rounds: int


EXTENTS = {"full": Extent(160, 10**6, len(ARMS), SEEDS, 2), "tiny": Extent(2, 8, 1, 1, 1)}


def run(scale: Scale) -> Result:
    extent, tiny = EXTENTS[scale.name], scale.name == "tiny"
    times: dict[str, list[float]] = {"tunescope": [], "peft": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        setup = prepare(folder)
        for round_ in range(extent.rounds):
            out = folder / f"run{round_}"
            commands = {
                "tunescope": _ours(setup.model, folder, out, extent),
                "peft": _theirs(setup.model, folder, out, extent),
            }
            for which in sorted(commands, reverse=bool(round_ % 2)):
                times[which].append(1000 * _seconds(commands[which]))
        ours = {arm["name"]: arm["score"] for arm in json.loads((out / "results.json").read_text())["arms"]}
        theirs = json.loads(out.with_suffix(".peft.json").read_text())
    scores = {name: {"tunescope": ours[arm], "peft": theirs[name]} for name, arm in ARMS.items() if name in theirs}
    best = max(theirs.values()) - max(ours.values())
    checks = [Check("the script's best test score above ours", best, 1.0 if tiny else 0.01)]
    settings = {"task": SKILL, **asdict(extent), "batch": BATCH, "test scores": scores}
    settings |= {"cores": os.cpu_count(), "mean test score": _means(scores)}
    return Result(
        [compared("5 methods, 3 rates, 3 seeds", "tunescope", "peft", times, TARGET, "wall")], checks, settings
    )


def _means(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    return {which: statistics.fmean(one[which] for one in scores.values()) for which in ("tunescope", "peft")}


def _ours(model: Path, data: Path, out: Path, extent: Extent) -> Sequence[str]:
    for part in ("train", "dev", "test"):
        lines = (data / f"{SKILL}.{part}.jsonl").read_text().splitlines(keepends=True)[: extent.rows]
        (data / f"cut.{part}.jsonl").write_text("".join(lines))
    return [
        *(sys.executable, "-m", "tunescope", "compare", str(model), str(data / "cut.train.jsonl"), "--arms"),
        *list(ARMS.values())[: extent.methods],
        *("--dev", str(data / "cut.dev.jsonl"), "--test", str(data / "cut.test.jsonl"), "--task", "generation"),
        *("--seeds", str(extent.seeds), "--trials", "3", "--steps", str(extent.steps), "--batch-size", str(BATCH)),
        *("--eval-every", str(extent.steps), "--out", str(out)),
    ]


def _theirs(model: Path, data: Path, out: Path, extent: Extent) -> Sequence[str]:
    sizes = (extent.steps, extent.rows, extent.methods, extent.seeds)
    script = (sys.executable, "-m", "benchmarks.tools.peft_script")
    return [*script, str(model), str(data), SKILL, str(out.with_suffix(".peft.json")), *map(str, sizes)]


def _seconds(command: Sequence[str]) -> float:
    """Wall time of a process with all cores; what it prints is only shown where it fails."""
    given = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(f"{command[2]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - start
