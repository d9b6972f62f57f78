"""Try every method on every family, and write what came of it.

    python -m scripts.families [FAMILY ...]      # those alone, or all: some three minutes

Writes results/families.json, from which `python -m scripts.readme` makes the table of docs/families.md.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch
from transformers.utils import logging

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "families.json"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="of the table; all where none is named")
    asked = parser.parse_args().families
    sys.path.insert(0, str(ROOT / "tests" / "tools"))
    from family_trials import ARMS, FAMILIES, build, trials

    from tunescope.system import machine

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    before = json.loads(RESULT.read_text("utf-8")) if asked and RESULT.exists() else {}
    if before and before["versions"] != machine.versions():
        parser.error("the table was made with other versions, which it tells of all families: name none, to try all.")
    known = before.get("families", {})
    for name in asked or FAMILIES:
        known[name] = trials(name)
        print(name, ", ".join(arm for arm, reason in known[name].items() if not reason), flush=True)
    found = {name: known[name] for name in FAMILIES if name in known}
    first: dict[str, str] = {}
    alike = {name: first.setdefault(build(name, found[name]), name) for name in found}
    told = {"command": "python -m scripts.families", "versions": machine.versions(), "methods": ARMS}
    told |= {"families": found, "built_as": alike}
    RESULT.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
