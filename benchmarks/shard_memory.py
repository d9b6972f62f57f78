"""A checkpoint loaded by several processes and sharded over them: private memory of each, as a share of the weights."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.tools.measuring import Check, Result
from benchmarks.tools.models import Scale, llama
from benchmarks.tools.where import device
from tunescope.system import ranks

CASES = ((2, "float32"), (4, "float32"), (2, "bfloat16"))  # processes, and the type that a file in float32 is loaded in
WITHIN = 0.2  # of the weights, beside each one's part: what reads and cuts them, and all that is no weight


def run(scale: Scale) -> Result:
    if device().type != "cpu":
        return Result(skipped="it is about processes on a CPU")
    is_tiny = scale.name != "full"
    model = llama(scale)
    weights = sum(value.numel() for value in model.parameters()) * 4 / 2**20
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        del model
        for world, dtype in CASES[:1] if is_tiny else CASES:
            path = str(Path(folder) / "found.json")
            code = ranks.begun(world, ["-m", "benchmarks.tools.shard_memory", path, folder, dtype])
            assert code == 0, f"{world} processes ended with {code}"
            found = {what: round(value / weights, 3) for what, value in json.loads(Path(path).read_text()).items()}
            rows.append({"processes": world, "type": dtype, **found})
    checks = [
        Check(f"{what}; {row['processes']} processes", row[what], 1 / row["processes"] + WITHIN)
        for row in rows
        if row["type"] == "float32" and not is_tiny
        for what in ("most", "sharded")
    ]
    settings = {"weights": f"{weights:.0f} MB in float32", "rows": rows}
    return Result(checks=checks or [Check("processes", CASES[0][0], CASES[0][0])], settings=settings)
