"""Memory of `tunescope compare` with four workers against one: the base's weights lie in memory once.

What is summed over all processes of the command is PSS, in which a page that n of them share counts 1/n in each; the
peak of that sum is told. Each run trains with activations of its own, which nothing shares. The model is that
in TUNESCOPE_PRETRAINED, or else a random one of GPT-2's shape.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.tools import pretrained
from benchmarks.tools.measuring import Check, Result, compared
from benchmarks.tools.models import Scale

WORKERS, TARGET = 4, 1.4
ONE, SEVERAL = "1 worker", f"{WORKERS} workers"
STEPS = 2
EVERY = 0.05  # seconds between two looks
COUNTS = {"train": 64, "dev": 8, "test": 8}
LONGEST = 20  # words of a row
ASKED = ("--arms", "lora", "--lr", "0.001", "0.002", "0.003", "0.005", "--seeds", "1", "--beyond", "0")  # a run each


def run(scale: Scale) -> Result:
    peaks: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, shown = pretrained.model(scale, folder / "model")
        data = pretrained.rows(scale, folder, COUNTS, LONGEST)
        for which, workers in ((ONE, 1), (SEVERAL, WORKERS)):
            words = [model, data["train"], "--dev", data["dev"], "--test", data["test"], *pretrained.ASKED, *ASKED]
            peaks[which] = [_peak([*words, "--workers", str(workers), "--out", str(folder / f"run-{workers}")])]
        base = sum(file.stat().st_size for file in Path(model).glob("*.safetensors")) / 2**20
    further = (peaks[SEVERAL][0] - peaks[ONE][0]) / (WORKERS - 1)
    checks = [] if scale.name == "tiny" else [Check("MB of a further worker, against MB of the base", further, base)]
    settings = {"model": shown, "MB of the base": round(base), "arm": "lora", "steps": STEPS, "batch": 8}
    settings |= {**COUNTS, "longest": LONGEST}
    return Result([compared(f"{shown}, a LoRA's runs", SEVERAL, ONE, peaks, TARGET, "memory")], checks, settings)


def _peak(words: Sequence[str]) -> float:
    """Megabytes: the most that all processes of a comparison have at one time."""
    brief = ("--steps", str(STEPS), "--batch-size", "8", "--eval-every", str(STEPS), "--forgetting", "none")
    command = [sys.executable, "-m", "tunescope", "compare", *words, *brief, "--device", "cpu"]
    most = 0.0
    with tempfile.TemporaryFile("w+") as told:
        begun = subprocess.Popen(
            command, stdout=told, stderr=told, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=pretrained.ROOT
        )
        while begun.poll() is None:
            most = max(most, megabytes(begun.pid))
            time.sleep(EVERY)
        if begun.returncode:
            told.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{told.read()[-2000:]}")
    return most


def megabytes(pid: int) -> float:
    """PSS of a process and of all that it has begun; 0 where it has ended."""
    try:
        root = psutil.Process(pid)
        return sum(_pss(one.pid) for one in (root, *root.children(recursive=True)))
    except psutil.NoSuchProcess:
        return 0.0


def _pss(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)
