"""The results of searches as findings, for the terminal and the page. Reads results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from tunescope.data import scores
from tunescope.report.finding import Finding
from tunescope.report.text import score, span

Json = Mapping[str, Any]
NONE = "no prompt"
IN_FRONT = (
    "Between the prompt's last token and the row's first nothing is put; a server that joins strings may read the two "
    "as other tokens where they meet."
)
TYPED = "What was not tried may do better."
IN_CHAT = "A server says it by the chat template that it has, which is to be the tokenizer's own."


def findings(results: Json) -> dict[str, Finding]:
    """scores, prompts, and transfer where prompts were carried."""
    found = {"scores": _scores(results), "prompts": _prompts(results)}
    return found | ({"transfer": _transfer(results)} if results["transfer"] else {})


def facts(results: Json) -> dict[str, Any]:
    """What the numbers were made on."""
    data, task, asked = results["data"], results["task"], results["protocol"]
    return {
        "model": results["model"]["name"],
        "attached": "prompts found by search",
        "data": ", ".join(f"{data[part]['rows']:,} {part} rows" for part in ("train", "dev", "test")),
        "template": task.get("template"),
        "label_words": ", ".join((task.get("words") or {}).values()) or None,
        "passes": asked["passes"],
        "seeds": asked["seeds"],
        "notes": " ".join(map(str, data.get("notes") or ())) or None,
        **results["versions"],
    }


def _scores(results: Json) -> Finding:
    scale = _scale(results)
    bare = results["zero_shot"]
    rows = [(NONE, "no label words were given" if bare["score"] is None else _cell(bare, scale), "", "")]
    for one in results["searches"]:
        if one["status"] != "done":
            rows.append((one["name"], f"refused: {one['reason']}", "", ""))
            continue
        against = ""
        if one["gain"] is not None:
            against = f"{score(one['gain'], scale, sign=True)} [{span(one['gain_interval'], scale, sign=True)}]"
        passes = fmean(run["found"]["passes"] for run in one["runs"])
        rows.append((one["name"], _cell(one, scale), against, f"{passes:,.0f}"))
    metric = str(results["task"]["metric"]).replace("_", " ")
    seeds = len(results["protocol"]["seeds"])
    over = "test rows and seeds" if seeds > 1 else "test rows alone: another seed could find another prompt"
    return Finding(
        heading="Scores on the test rows",
        says=f"The {metric} of the prompt that each search found, the mean over {seeds} seed{'s' * (seeds != 1)}, and "
        f"the difference to the model without a prompt on the same rows. 95 % intervals are over {over}. Passes are "
        "rows that went forward; a backward pass counts as two more, and development rows are counted.",
        not_said="The intervals are not corrected for the number of searches. A prompt that scores well need not say "
        "why: searches find words that work, which are often no instruction.",
        columns=("search", "test", "against no prompt", "passes"),
        rows=rows,
    )


def _prompts(results: Json) -> Finding:
    scale, metric = _scale(results), results["task"]["metric"]
    rows = []
    for one in results["searches"]:
        for run in one["runs"]:
            cut = {f"{part} rows cut beside it": count for part, count in run.get("cut", {}).items()}
            changed = "; ".join(f"{count} {what}" for what, count in {**run["found"]["counts"], **cut}.items())
            dev, test = score(run["found"]["dev"], scale), score(run["test"][metric], scale)
            kept = run["artifact"] or "nothing to attach"
            rows.append((one["name"], str(run["seed"]), run["shown"], dev, test, kept, changed))
    texts = any(run["shown"].startswith('"') for one in results["searches"] for run in one["runs"])
    quoted = f", in quotes: the text {_stands(results)}. It is what was scored: its text comes back to the same tokens"
    return Finding(
        heading="The prompts",
        says=f"What each search found at each seed{quoted if texts else ', as it is typed'}. Dev is the score on the "
        "development rows that it was chosen by, which is too good as a measure of it.",
        not_said=(IN_CHAT if results["task"].get("chat") else IN_FRONT) if texts else TYPED,
        columns=("search", "seed", "prompt", "dev", "test", "kept in", "on the way"),
        rows=rows,
        numbers={"arms": [run["arm"] for one in results["searches"] for run in one["runs"]]},
    )


def _stands(results: Json) -> str:
    return "is what the system of the chat says" if results["task"].get("chat") else "stands in front of every row"


def _transfer(results: Json) -> Finding:
    scale = _scale(results)
    source, targets = results["model"]["name"], results["transfer"]
    bare = (
        "no label words were given"
        if one["zero_shot"]["score"] is None and one.get("status") != "refused"
        else _cell(one["zero_shot"], scale)
        for one in (results, *targets)
    )
    rows = [(NONE, *bare)]
    for at, one in enumerate(one for one in results["searches"] if one["status"] == "done"):
        rows.append((one["name"], _cell(one, scale), *(_carried(target, at, scale) for target in targets)))
    reasons = [f"{t['model']}: {t['reason']}" for t in targets if t["reason"]]
    cells = [(target["model"], one) for target in targets for one in target["searches"]]
    reasons += [f"{model}, {one['name']}: {one['reason']}" for model, one in cells if one["reason"]]
    return Finding(
        heading="Carried to other models",
        says=f"Prompts found on {source}, put by their text in front of the same test rows of other models: the "
        "mean over seeds, with 95 % intervals." + ("" if not reasons else " Refused: " + " ".join(reasons)),
        not_said="A prompt that carries over is not the best there is: a search on the other model may find a better.",
        columns=("search", f"{source} (source)", *(target["model"] for target in targets)),
        rows=rows,
    )


def _carried(target: Json, at: int, scale: float) -> str:
    """Of the search that is the target's `at`-th, by place: two of one method may have one name."""
    return _cell(target["searches"][at], scale) if at < len(target["searches"]) else "refused"


def _cell(one: Json, scale: float) -> str:
    """0.612 [0.580 to 0.640]"""
    if one["score"] is None:
        return "refused"
    return f"{score(one['score'], scale)} [{span(one['interval'], scale)}]"


def _scale(results: Json) -> float:
    return scores.scale(str(results["task"]["metric"]))
