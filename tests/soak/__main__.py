"""`python tests/soak`: all parts, `python tests/soak PART ...` those named; figures go to benchmarks/results/soak.json.

A part is a file of this folder with `run(folder, seed, count)`, which gives its figures, "faults" among them; what went
wrong is listed there, and the exit code is 1. --count N: so many tries of each part (0: all that are meant); --seed S.
"""

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "soak.json"


def parts():
    """Their names: the files that have a `run`."""
    return sorted(path.stem for path in HERE.glob("[a-z]*.py") if "\ndef run(folder, seed, count" in path.read_text())


def soak(name, seed, count):
    """A part's section: its figures, with what they hang on."""
    import torch

    from tunescope.system import machine

    torch.set_num_threads(1)
    folder, started = Path(tempfile.mkdtemp(prefix=f"soak-{name}-")), time.monotonic()
    module = importlib.import_module(name)
    figures = module.run(folder, seed, count)
    if not figures["faults"]:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "about": (module.__doc__ or "").partition("\n")[0],
        "command": f"python tests/soak {name} --seed {seed}" + (f" --count {count}" if count else ""),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(time.monotonic() - started),
        "seed": seed,
        "versions": machine.versions(),
        "machine": machine.describe(torch.device("cpu"), 1),
        **figures,
    }


def main():
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts())}")
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--count", type=int, default=0)
    asked = given.parse_args()
    if unknown := set(asked.parts) - set(parts()):
        given.error(f"no part {sorted(unknown)[0]!r}; there are: {', '.join(parts())}")
    is_wrong = False
    for name in asked.parts or parts():
        section = soak(name, asked.seed, asked.count)
        page = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"version": 1}
        RESULTS.write_text(json.dumps(page | {name: section}, indent=1, sort_keys=True) + "\n")
        print(json.dumps({name: section}, indent=1), flush=True)
        is_wrong = is_wrong or bool(section["faults"])
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
