"""Some arms of a committed comparison made again, by the code of today, and put in the place of the old.

    python -m scripts.arms_again sst2-methods --data DATA --model SMOLLM2 --arms demos:k=4

The arms run by themselves, with the question, seeds and rows of the result; the others stand as they are, with what is
computed of both (intervals, differences, the verdict, the page) made anew. Each arm says on the page that it was made
again, and on which machine. They are arms that train nothing: what is trained was chosen among rates in one go.
"""

import argparse
import math
import shutil
from pathlib import Path
from typing import Any

from scripts.results import REAL, asked
from tunescope.comparison.results import _arm, _comparisons
from tunescope.comparison.standing import Standing, best_on_dev
from tunescope.report import page, two_runs
from tunescope.report.verdict import reader, stats
from tunescope.report.verdict.verdict import decide
from tunescope.system import run_folder, sealed_json

SAME = ("seeds", "k_shot", "precision", "margin")
AGAIN = "Made again by itself"  # what the remark on such an arm begins with
RECOMPUTED = ("score", "interval", "near_best", "chosen", "also")


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The old results with the arms of the new in their places."""
    check_same(old, new)
    made = {arm["name"]: arm | {"remarks": [*arm["remarks"], _told(new)]} for arm in new["arms"]}
    lost = [name for name in made if name not in {arm["name"] for arm in old["arms"]}]
    if lost or any(arm["status"] != "done" or arm["trials"] for arm in made.values()):
        raise SystemExit(f"An arm of another name, one that is not done, or one that was trained: {lost or [*made]}.")
    arms = [made.get(arm["name"], arm) for arm in old["arms"]]
    metric, dev_rows = old["task"]["metric"], reader.dev_rows(old)
    score, inputs = stats.scorer(metric), old["data"]["test"].get("inputs")
    standings = [_standing(arm) for arm in arms]
    tuned = (stats.by_seed(one.runs) for one in standings if one.trials and one.status == "done")
    pool = stats.pool_of(tuned, score)
    computed = [_arm(one, score, dev_rows, pool, inputs) for one in standings]
    for arm, now in zip(arms, computed, strict=True):
        if arm["name"] not in made and not _alike(now["interval"], arm["interval"]):
            raise SystemExit(f"{arm['name']} has another interval by today's rule: tell the result again first.")
        arm |= {key: now[key] for key in RECOMPUTED} if arm["name"] in made else {}
    best = best_on_dev(standings)
    if best is None or best.name != old["best"]["arm"]:
        raise SystemExit(f"Another arm would be the best on the development rows: {best and best.name}.")
    whole = old | {"arms": arms, "comparisons": _comparisons(standings, best, score, pool, inputs)}
    return whole | {"examples": _examples(old, new, arms)}


def check_same(old: dict[str, Any], new: dict[str, Any]) -> None:
    """SystemExit where the two were not asked the same of the same."""
    pairs = [(f"{part} rows", old["data"][part]["sha256"], new["data"][part]["sha256"]) for part in ("train", "test")]
    pairs += [("model", old["model"]["fingerprint"], new["model"]["fingerprint"])]
    known = [key for key in SAME if key in old["protocol"]]  # earlier results did not tell of the rows of --k-shot
    pairs += [(key, old["protocol"][key], new["protocol"].get(key)) for key in known]
    pairs += [("--k-shot", "--k-shot" in old["command"], "--k-shot" in new["command"])]
    pairs += [(key, old["task"].get(key), new["task"].get(key)) for key in ("template", "words", "metric")]
    apart = [name for name, one, other in pairs if one != other]
    if apart:
        raise SystemExit(f"Another question: {', '.join(apart)}.")


def _alike(one: list[float] | None, other: list[float] | None) -> bool:
    """But for the last digits, which are another machine's."""
    pairs = zip(one or (), other or (), strict=True)
    return all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in pairs)


def _told(new: dict[str, Any]) -> str:
    machine = new["machine"]
    return f"{AGAIN} on {new['created'][:10]}, on {machine['device']} ({machine['cpu']})."


def _standing(arm: dict[str, Any]) -> Standing:
    kept = ("name", "spec", "group", "parameters", "status", "reason", "trials", "runs")
    return Standing(**{key: arm[key] for key in kept}, varies=two_runs._varies(arm))


def _examples(old: dict[str, Any], new: dict[str, Any], arms: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows that were shown, with what the arms answer now; probabilities where the new result shows the row too."""
    examples, labels = old["examples"], old["task"]["labels"]
    answers = {arm["name"]: [int(row[2]) for row in arm["runs"][0]["stats"]] for arm in arms if arm["runs"]}
    again = {name: at for at, name in enumerate(new["examples"]["arms"])}
    shares = {row["row"]: row["scores"] for row in new["examples"]["rows"]}
    for row in examples["rows"]:
        for place, name in enumerate(examples["arms"]):
            if name in again:
                row["outputs"][place] = labels[answers[name][row["row"] - 1]]
                row["scores"][place] = shares[row["row"]][again[name]] if row["row"] in shares else {}
    every = [answers[name] for name in examples["arms"]]
    return examples | {"apart": sum(len(set(given)) > 1 for given in zip(*every, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=REAL)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--arms", nargs="+", required=True)
    given = parser.parse_args()
    run, path = Path("runs") / f"{given.name}-again", Path("results") / f"{given.name}.json"
    asked(given.name, given.data, given.model, run, arms=given.arms)
    results = merged(sealed_json.read(path), run_folder.read_results(run))
    results["verdict"] = decide(results)
    sealed_json.put(path, results)
    page.write(results, path.with_suffix(".html"))
    shutil.rmtree(run)


if __name__ == "__main__":
    main()
