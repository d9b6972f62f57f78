"""What came of an arm's runs, and which of their tensors are kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.comparison import examples, saved_artifact
from tunescope.comparison.entry import Entry
from tunescope.comparison.outcome import Outcome
from tunescope.comparison.standing import Standing
from tunescope.report.verdict.edges import rates_of
from tunescope.report.verdict.remarks import rate_remarks, remarks
from tunescope.system import files, run_folder, shell

NUMBERS = ("id", "seed", "dev", "test", "stats", "seconds", "memory_mb", "steps", "curve", "mechanism", "forgetting")
RUN = (*NUMBERS, "demonstrations", "found", "reading", *examples.KEPT)  # None for most arms

SHARED = "; shared passes: its memory is that of all who shared, its time is its part"


def conclude(entry: Entry, outcomes: dict[str, Outcome]) -> None:
    """The runs of the chosen rate; an arm that lost one of them has no score, since the others have all theirs."""
    standing, found = entry.standing, [outcomes[todo.id] for todo in entry.runs]
    standing.runs = [{key: one.get(key) for key in RUN} for one in found if one["status"] == "done"]
    lost = [one for one in found if one["status"] != "done"]
    if lost:
        fail(standing, lost[0])
    of_rates, of_trials = ([], []) if lost else (rate_remarks(standing.trials), [entry.unmoved] * bool(entry.unmoved))
    of_start = entry.arm.remarks if entry.arm else ()
    standing.remarks = [*of_start, *of_rates, *remarks(standing.runs), *of_trials]
    prompts = dict.fromkeys(one["shown"] for one in found if one.get("found"))
    if prompts:
        standing.remarks.append(f"found: {' | '.join(prompts)}")
    if any(one.get("together") for one in found) and SHARED not in standing.note:  # looks conclude again
        standing.note += SHARED
    cut: dict[str, int] = {}
    for one in found:
        for part, rows in {**one.get("cut", {}), **one.get("cut_test", {})}.items():
            cut[part] = max(rows, cut.get(part, 0))
    if any(cut.values()):
        counts = ", ".join(f"{rows:,} {part}" for part, rows in cut.items() if rows)
        beside = " beside what stands in front" if standing.group in ("context", "text", "both") else ""
        standing.remarks.append(f"inputs cut to fit the model's positions{beside}: {counts} rows.")


def fail(standing: Standing, outcome: Outcome) -> None:
    standing.status = outcome["status"]
    standing.reason = f"seed {outcome['seed']}" + (
        f", learning rate {rates_of(outcome)}" if outcome["learning_rate"] else ""
    )
    standing.reason += f": {outcome['reason']}"


def drop_losers(folder: Path, entry: Entry) -> None:
    """Tensors of learning rates that were not chosen; their numbers stay."""
    kept = {todo.id for todo in entry.runs}
    for todo in entry.trials if entry.runs else []:
        if todo.id not in kept:
            files.remove(run_folder.folder(folder, todo.id) / "artifact")


def keep_best(folder: Path, best: Standing) -> bool:
    """Copy the artifact of the best arm's best run to RUN/best; False where the best arm has nothing to keep.

    Raises UserError for an artifact that is damaged; what was in RUN/best then stays.
    """
    chosen = max(best.runs, key=lambda one: one["dev"])
    source, target = saved_artifact.place(folder, chosen["id"]), folder / "best"
    if not source.exists():
        files.remove(target)
        return False
    saved_artifact.copy(source, target, f"type: tunescope resume {shell.path(folder)}")
    return True


def no_artifact(results: Mapping[str, Any]) -> str:
    """Why a run has no RUN/best, in a line; "" where results.json tells of one."""
    best = results.get("best")
    if best is None:
        return "no artifact: no arm finished"
    if best["path"] is not None:
        return ""
    group = next((one["group"] for one in results["arms"] if one["name"] == best["arm"]), "none")
    if group == "none":
        return f"no artifact: the model as it is, {best['arm']}, does best on dev"
    return (
        f"no artifact: {best['arm']}, best on dev, changes only the words that the model is given, so nothing is saved"
    )
