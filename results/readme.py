"""Write the README's tables from the result files; `--check` only says whether they are up to date.

python results/readme.py
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TITLES = {
    "sst2": "SST-2, all-MiniLM-L6-v2",
    "trec": "TREC (6 classes), all-MiniLM-L6-v2",
    "e2e": "E2E, stories260K",
}
SHORT = {
    "adapter:placement=parallel,scale=4.0": "parallel adapter ×4",
    "adapter": "sequential adapter",
    "bias": "BitFit",
}


def real() -> str:
    """One table a data set: score with its interval, parameters."""
    found = [_real(name, title) for name, title in TITLES.items() if (ROOT / "results" / f"{name}.json").exists()]
    return "\n\n".join(found)


def _real(name: str, title: str) -> str:
    results = json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))
    protocol, verdict = results["protocol"], results["verdict"]
    lines = [
        f"**{title}** ({results['task']['metric']}; {scored(results):,} test items, "
        f"{len(protocol['seeds'])} seeds, {protocol['trials_per_arm']} rates an arm, {protocol['steps']} steps of "
        f"{protocol['batch_size']}; `results/{name}.json`). Verdict: *{verdict['answer']}*.",
        "",
        "| arm | score | 95 % interval | parameters stored | rate |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(lines + [_arm(arm, results["task"]["metric"]) for arm in results["arms"]])


def scored(results: dict[str, Any]) -> int:
    """Test items: fewer than the rows where several references share one input."""
    return max(len(run["stats"]) for arm in results["arms"] for run in arm["runs"])


def _arm(arm: dict[str, Any], metric: str) -> str:
    name = arm["name"]
    for long, short in SHORT.items():
        name = re.sub(rf"(^|\+){re.escape(long)}(?= @|$)", rf"\1{short}", name)
    if arm["score"] is None:
        return f"| {name} | {arm['status']} | {arm['reason']} | | |"
    digits = 1 if metric == "bleu" else 3
    low, high = arm["interval"]
    rate = "" if arm["learning_rate"] is None else f"{arm['learning_rate']:g}"
    stored = f"{arm['parameters']['stored']:,}"
    return f"| {name} | {arm['score']:.{digits}f} | {low:.{digits}f} to {high:.{digits}f} | {stored} | {rate} |"


def bench() -> str:
    """Every ratio that has a target, with peft's beside it where it was measured in the same rounds."""
    lines = ["| | tunescope | at most | peft |", "|---|---|---|---|"]
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        rows = json.loads(path.read_text("utf-8"))["ratios"]
        for row in rows:
            if row["at_most"] is None:
                continue
            rival = [
                other["ratio"]
                for other in rows
                if other["case"] == row["case"]
                and other["quantity"] == row["quantity"]
                and other["baseline"] == row["baseline"]
                and "peft" in other["variant"]
            ]
            peft = f"{rival[0]:.2f}" if rival else ""
            what = f"{row['case']}, {row['quantity']} / {row['baseline']}"
            missed = "" if row["met"] else " (missed)"
            lines.append(f"| {what} | {row['ratio']:.2f}{missed} | {row['at_most']:g} | {peft} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    for mark, made in (("real", real()), ("bench", bench())):
        pattern = rf"<!-- {mark}:begin -->.*?<!-- {mark}:end -->"
        body = f"<!-- {mark}:begin -->\n\n{made}\n\n<!-- {mark}:end -->"
        text = re.sub(pattern, lambda _, body=body: body, text, flags=re.DOTALL)
    return text


def main() -> int:
    path = ROOT / "README.md"
    before = path.read_text("utf-8")
    after = filled(before)
    if "--check" in sys.argv:
        return int(before != after)
    path.write_text(after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
