"""Write the tables of the README and of docs/ from the result files; `--check` only says whether they are up to date.

python -m scripts.readme
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from scripts import claims, families_table, findings, methods_table, paper_table, spans
from scripts.arms_again import AGAIN
from scripts.numbers import BUSY, answer
from scripts.scale import TABLES
from tunescope.report.verdict.edges import rates_of

ROOT = Path(__file__).resolve().parent.parent
TITLES = {
    "sst2": "SST-2, all-MiniLM-L6-v2",
    "trec": "TREC (6 classes), all-MiniLM-L6-v2",
    "e2e": "E2E, stories260K",
    "sst2-smollm2": "SST-2 (at most 25 words), SmolLM2-135M",
    "trec-smollm2": "TREC (at most 40 words), SmolLM2-135M, two budgets",
    "ag_news-smollm2": "AG News (at most 40 words), SmolLM2-135M, two budgets",
    "trec-methods": "TREC (at most 40 words), SmolLM2-135M, every kind of method",
    "sst2-methods": "SST-2 (at most 25 words), SmolLM2-135M, every kind of method",
    "ag_news-methods": "AG News (at most 40 words), SmolLM2-135M, every kind of method",
    "sst2-methods-16": "SST-2 (at most 25 words), SmolLM2-135M, 16 rows of each label, every kind of method",
    "trec-methods-16": "TREC (at most 40 words), SmolLM2-135M, 16 rows of each label, every kind of method",
    "ag_news-methods-16": "AG News (at most 40 words), SmolLM2-135M, 16 rows of each label, every kind of method",
    "rte-methods": "RTE (at most 60 words), SmolLM2-135M, every kind of method",
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
    protocol = results["protocol"]
    lines = [
        f"**{title}** ({results['task']['metric']}; {scored(results):,} test items, "
        f"{_seeds(protocol)}, {protocol['trials_per_arm']} rates an arm, {protocol['steps']} steps of "
        f"{protocol['batch_size']}; {_cost(name, results)}; `results/{name}.json`). Verdict: "
        f"{answer(results)}{_rule(protocol)}.",
        "",
        "| arm | score | 95 % interval | parameters stored | rate |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(lines + [_arm(arm, results["task"]["metric"]) for arm in results["arms"]])


def _seeds(protocol: dict[str, Any]) -> str:
    """How many; and of the two arms that decide, where they were run at more."""
    first, last = len(protocol["seeds"]), (protocol.get("looks") or {}).get("at") or 0
    return f"{first} seeds" + (f" ({last} of the two arms that decide)" if last > first else "")


def _cost(name: str, results: dict[str, Any]) -> str:
    """What the runs of the seeds took; rates tried at the first come on top, of which no seconds are kept."""
    again = [arm["name"] for arm in results["arms"] if any(told.startswith(AGAIN) for told in arm["remarks"])]
    seconds = sum(run["seconds"] or 0 for arm in results["arms"] for run in arm["runs"] if arm["name"] not in again)
    device = {"cpu": "one core"}.get(results["machine"]["device"], f"an {results['machine']['device']}")
    told = f"the seeds' runs took {seconds / 60:.0f} min of {device}{', which others used too' * (name in BUSY)}"
    return told + (f", without {' and '.join(again)}, which were made again" if again else "")


def _rule(protocol: dict[str, Any]) -> str:
    """That a verdict is not of today's procedure, which has looks; as `tunescope report` marks it."""
    return "" if "looks" in protocol else ", by an earlier rule, starts and grids; it is to be made again"


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
    rate = "" if arm["learning_rate"] is None else rates_of(arm)
    stored = f"{arm['parameters']['stored']:,}"
    return f"| {name} | {arm['score']:.{digits}f} | {low:.{digits}f} to {high:.{digits}f} | {stored} | {rate} |"


def bench() -> str:
    """Every ratio that has a target, with peft's beside it where it was measured in the same rounds."""
    lines = ["| benchmark | | tunescope | at most | peft |", "|---|---|---|---|---|"]
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        rows = json.loads(path.read_text("utf-8")).get("ratios", ())  # a soak has none
        name = f"`{path.stem}`"
        for row in rows:
            if row["at_most"] is None:
                continue
            rival = [other["ratio"] for other in rows if _same(other, row) and "peft" in other["variant"]]
            peft = f"{rival[0]:.2f}" if rival else ""
            own = [other["variant"] for other in rows if _same(other, row) and other["at_most"] is not None]
            variant = f", {row['variant']}" if len(own) > 1 else ""
            what = f"{row['case']}{variant}, {row['quantity']} / {row['baseline']}"
            missed = "" if row["met"] else " (missed)"
            lines.append(f"| {name} | {what} | {row['ratio']:.2f}{missed} | {row['at_most']:g} | {peft} |")
    return "\n".join(lines)


def thousands() -> str:
    """A bank of many artifacts in a folder, in a sentence."""
    found = json.loads((ROOT / "benchmarks" / "results" / "bank_folder.json").read_text("utf-8"))
    first, again = found["ratios"]
    opened, grown = found["checks"]
    hot = re.findall(r"(\d+) allowed", grown["name"])[0]
    return (
        f"Measured with {found['settings']['artifacts']:,} LoRAs of {found['settings']['bytes each'] / 1e6:.1f} MB on "
        f"a Llama of 8 layers (`benchmarks/results/bank_folder.json`): opening the folder took {opened['value']:.2f} "
        f"s; a pass whose {found['settings']['rows']} rows each ask for an artifact for the first time "
        f"{first['ratio']:.2f} times one that has them at hand, and that {again['ratio']:.2f} times one of the bare "
        f"model. After all were used once, {grown['value']:.0f} MB more were resident than before, where {hot} were "
        "allowed to stay beside what a batch is using."
    )


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two ratios are of the same case, quantity and baseline."""
    return all(one[key] == other[key] for key in ("case", "quantity", "baseline"))


def reach() -> str:
    """On how many families each method works."""
    return families_table.counts(json.loads((ROOT / "results" / "families.json").read_text("utf-8")))


def identity() -> str:
    """The largest deviations from the two laws, over all families."""
    rows = json.loads((ROOT / "results" / "petrov-attention.json").read_text("utf-8"))["table"]["rows"]
    (exact, pattern, output), (_, half, _) = (_largest(rows, precision) for precision in ("float64", "float16"))
    theirs = [cell["paper"] for cell in rows[-1]["cells"][:2]]
    return (
        f"In the first layer a prefix only scales attention over the text and adds a bias. On {exact} families, "
        f"every head, the largest deviation in float64 is {pattern:.1e} for the pattern and {output:.1e} of the output "
        f"(`tunescope reproduce petrov-attention`; any model with `--model`). In float16 it is {half:.1e} for the "
        f"pattern; published, of {rows[-1]['label']}: {theirs[0]}, and {theirs[1]} of the output."
    )


def _largest(rows: list[dict[str, Any]], precision: str) -> tuple[int, float, float]:
    """How many families, and the largest deviations of the pattern and of the output, in a precision."""
    found = [row["cells"] for row in rows if row["label"].endswith(precision)]
    pattern, output = (max(cells[i]["mean"] for cells in found) for i in (0, 1))
    return len(found), pattern, output


def filled(text: str) -> str:
    marks = {
        "real": real,
        "first": methods_table.table,
        "identity": identity,
        "bench": bench,
        "thousands": thousands,
        "reach": reach,
    }
    marks |= {"claims": claims.table, "pretrained": claims.pretrained, "counts": claims.counts, "pilots": claims.pilots}
    for mark, making in marks.items():
        if f"<!-- {mark}:begin -->" not in text:
            continue
        made = making()
        pattern = rf"<!-- {mark}:begin -->.*?<!-- {mark}:end -->"
        around = (
            "" if mark in ("thousands", "reach", "pretrained", "pilots", "counts", "identity") else "\n\n"
        )  # within a sentence
        body = f"<!-- {mark}:begin -->{around}{made}{around}<!-- {mark}:end -->"
        text = re.sub(pattern, lambda _, body=body: body, text, flags=re.DOTALL)
    text = findings.filled(spans.filled(text))
    named = r"<!-- (table|search|scale|model|starts|families):(\S+):begin -->.*?<!-- \1:\2:end -->"
    return re.sub(named, _named, text, flags=re.DOTALL)


def _named(match: re.Match[str]) -> str:
    """The table of results/NAME.json, of a recipe or of a search, or one of scale, where a page asks for it."""
    kind, name = match.groups()
    if kind == "scale":
        return f"<!-- scale:{name}:begin -->\n\n{TABLES[name]()}\n\n<!-- scale:{name}:end -->"
    result = json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))
    making = {
        "table": paper_table.table,
        "search": _search,
        "model": _model,
        "starts": _starts,
        "families": families_table.table,
    }
    made = making[kind](result)
    return f"<!-- {kind}:{name}:begin -->\n\n{made}\n\n<!-- {kind}:{name}:end -->"


def _starts(found: dict[str, Any]) -> str:
    """Of each start the mean test score on each corpus, and the learning rate that was chosen."""
    names = dict.fromkeys(arm["name"] for corpus in found.values() for arm in corpus["arms"])
    by_corpus = {title: {arm["name"]: arm for arm in corpus["arms"]} for title, corpus in found.items()}
    lines = [f"| arm | {' | '.join(by_corpus)} |", "|---" * (1 + len(by_corpus)) + "|"]
    return "\n".join(
        lines + [f"| {name} | {' | '.join(_start(arms.get(name)) for arms in by_corpus.values())} |" for name in names]
    )


def _start(arm: dict[str, Any] | None) -> str:
    if arm is None or arm["status"] != "done":
        return ""
    rate = "" if arm["learning_rate"] is None else f" ({arm['learning_rate']:g})"
    return f"{sum(arm['test']) / len(arm['test']):.3f}{rate}"


def _model(made: dict[str, Any]) -> str:
    """What a model of our own is, from its manifest."""
    if "recipe" not in made:
        return _taught_on(made)
    recipe = made["recipe"]
    size, settings = recipe["size"], recipe["settings"]
    losses = ", ".join(f"{name} {loss:.2f} nats a token on held-out text" for name, loss in made["losses"].items())
    adapted = f" and {recipe['adapted']:,} of adaptation" if recipe["adapted"] else ""
    return (
        f"The {recipe['kind']}: {made['parameters']:,} parameters, {size['layers']} layers of width {size['width']}, "
        f"{size['vocabulary']:,} tokens; {settings['steps']:,} steps{adapted} of {settings['batch_size']} rows of "
        f"{size['length']} from a corpus of {made['tokens']:,} tokens, in {settings['precision']}; {losses}."
    )


def _taught_on(made: dict[str, Any]) -> str:
    """The same of a model that begins as another one's weights."""
    before, after = made["losses"]["before"], made["losses"]["masked words"]
    return (
        f"{made['parameters']:,} parameters, begun as those of {made['model']}; {made['steps']:,} steps of "
        f"{made['batch_size']} rows of {made['length']} at a rate of {made['rate']:g} from a corpus of "
        f"{made['tokens']:,} tokens; {before:.2f} nats a masked token on held-out text before, {after:.2f} after."
    )


def _search(result: dict[str, Any]) -> str:
    """A row a search: its score, its gain, and what each seed found."""
    lines = [f"`{result['command']}`", "", "| search | test | gain | found |", "|---|---|---|---|"]
    bare = result["zero_shot"]
    lines.append(f"| none | {_span(bare['score'], bare['interval'])} | | |")
    for one in result["searches"]:
        found = "; ".join(run["shown"].removeprefix("--words ") for run in one["runs"])
        gain = _span(one["gain"], one["gain_interval"])
        lines.append(f"| {one['name']} | {_span(one['score'], one['interval'])} | {gain} | {found} |")
    return "\n".join(lines)


def _span(value: float, interval: list[float]) -> str:
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def main() -> int:
    pages = {path: path.read_text("utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
    wrong = [told for text in pages.values() for told in spans.untrue(text)]
    for told in wrong:
        print(f"not so: {told}", file=sys.stderr)
    checks, last = "--check" in sys.argv, {path: pages.pop(path) for path in findings.pages()}
    stale = _put({path: filled(text) for path, text in pages.items()}, checks=checks)
    drawn = findings.pictures("\n".join(last.values()))
    stale += _put({path: filled(text) for path, text in last.items()} | drawn, checks=checks)  # they link to the others
    unused = set(findings.PICTURES.glob("*.svg")) - set(drawn)
    if checks:
        return int(bool(stale or unused or wrong))
    for path in unused:
        path.unlink()
    return int(bool(wrong))


def _put(made: dict[Path, str], *, checks: bool) -> int:
    """How many were otherwise; they are written where nothing is only checked."""
    stale = {path: text for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in () if checks else stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())
