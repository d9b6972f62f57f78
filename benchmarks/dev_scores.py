"""What a comparison on a pretrained model costs: development scores on a fifth of the passes, or on all rows each time,
and what stopping rates that have lost and products in bfloat16 save beside.

The question: zero-shot, demos:k=4, prefix, lora; three rates and one beyond, three seeds, 60 steps of 8, scored every
20; 400 rows to train on of at most 25 words, 100 development and 150 test rows. One worker, one thread; CPU time of the
whole command.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.tools import pretrained
from benchmarks.tools.measuring import Check, Result, compared
from benchmarks.tools.models import Scale

TARGET = 8 * 60.0  # seconds
COUNTS = {"full": {"train": 400, "dev": 100, "test": 150}, "tiny": {"train": 24, "dev": 8, "test": 8}}
ARMS = {"full": ("zero-shot", "demos:k=4", "prefix", "lora"), "tiny": ("zero-shot", "lora")}
STEPS = {"full": ("60", "20"), "tiny": ("2", "1")}
LONGEST = 25  # words
VARIANTS = {
    "a fifth": ("--dev-share", "0.2"),
    "a fifth, --halving --precision bfloat16": ("--dev-share", "0.2", "--halving", "--precision", "bfloat16"),
    "all rows": ("--dev-share", "1"),
}


def run(scale: Scale) -> Result:
    if scale.name != "tiny" and (reason := pretrained.missing(pretrained.MODEL, pretrained.DATA)):
        return Result(skipped=reason)
    times: dict[str, list[float]] = {}
    scores = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, shown = pretrained.model(scale, folder / "model")
        data = pretrained.rows(scale, folder, COUNTS[scale.name], LONGEST)
        steps, every = STEPS[scale.name]
        words = ["compare", model, data["train"], "--dev", data["dev"], "--test", data["test"], *pretrained.ASKED]
        words += ["--arms", *ARMS[scale.name], "--steps", steps, "--batch-size", "8", "--eval-every", every]
        words += ["--trials", "3", "--beyond", "1", "--seeds", "3", "--workers", "1", "--device", "cpu"]
        for number, (what, options) in enumerate(VARIANTS.items()):
            out = folder / f"run-{number}"
            times[what] = [1000 * pretrained.cpu_seconds([*words, *options, "--out", str(out)])]
            arms = json.loads((out / "results.json").read_text())["arms"]
            scores[what] = {arm["name"]: arm["score"] for arm in arms}
    seconds = {what: time[0] / 1000 for what, time in times.items() if what != "all rows"}
    checks = (
        [] if scale.name == "tiny" else [Check(f"seconds, {what}", taken, TARGET) for what, taken in seconds.items()]
    )
    settings = {"model": shown, **COUNTS[scale.name], "longest": LONGEST, "steps": int(steps), "scores": scores}
    ratios = [compared(f"{shown}, a comparison", what, "all rows", times) for what in seconds]
    return Result(ratios, checks, settings)
