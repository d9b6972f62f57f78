"""Each section of `tunescope anchors` on a pretrained model: 50 test rows, one demonstration a class, five draws.

CPU time of the whole command for each section alone, one worker, one thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.tools import pretrained
from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.system import plugins

TARGET = 3 * 60.0  # seconds
ROWS = {"full": "50", "tiny": "2"}
DRAWS = {"full": "5", "tiny": "1"}
COUNTS = {"full": {"train": 400, "test": 150}, "tiny": {"train": 24, "test": 8}}
LONGEST = 25  # words


def run(scale: Scale) -> Result:
    if scale.name != "tiny" and (reason := pretrained.missing(pretrained.MODEL, pretrained.DATA)):
        return Result(skipped=reason)
    checks = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, shown = pretrained.model(scale, folder / "model")
        data = pretrained.rows(scale, folder, COUNTS[scale.name], LONGEST)
        words = ["anchors", model, data["train"], "--test", data["test"], *pretrained.ASKED, "--workers", "1"]
        words += ["--k", "1", "--rows", ROWS[scale.name], "--seeds", DRAWS[scale.name]]
        for section in plugins.names(DEMONSTRATIONS)[: None if scale.name == "full" else 1]:
            seconds = pretrained.cpu_seconds([*words, "--only", section, "--out", str(folder / section)])
            checks.append(Check(f"seconds of {section}", round(seconds, 1), TARGET))
    settings = {"model": shown, "rows": ROWS[scale.name], "draws": DRAWS[scale.name], "longest": LONGEST}
    return Result((), checks, settings)
