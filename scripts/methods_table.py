"""Every kind of method on SmolLM2-135M in one table, a column a corpus: of results/*-methods*.json."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from scripts.numbers import BUSY, RESULTS, answer, read
from scripts.results import CORPORA

TITLES = {"sst2": "SST-2", "trec": "TREC", "ag_news": "AG News", "rte": "RTE"}
FEW = "-16"
SHOWN = {
    "demos:k=4": "4 demonstrations of each label",
    "similar": "1 of each label, like the query",
    "label_words": "label words, searched",
    "soft:length=24": "soft prompt",
    "noise": "prefix, begun as noise",
    "prefix": "prefix, begun as demonstrations",
    "lora": "LoRA",
    "adapter": "adapter, sequential",
    "mam": "MAM: prefix and parallel adapter",
    "norms": "norms alone",
    "full": "full tuning",
}


def table() -> str:
    """Of each method its accuracy on each corpus with the 95 % interval; what it stores, forgets and takes.

    What it forgets is the least and the most of the corpora, the seconds are their mean, the memory is the most.
    """
    found = {title: read(name) for name, title in _results()}
    names = [arm["name"] for arm in next(iter(found.values()))["arms"]]
    heads = [*found, "stored", "forgets", "s", "MB"]
    lines = [f"| method | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    lines += [_row(name, list(found.values())) for name in names]
    verdicts = " | ".join(map(answer, found.values()))
    return "\n".join([_head(found), "", *lines, f"| **verdict** | {verdicts} | | | | |"])


def _results() -> Iterator[tuple[str, str]]:
    """Those that were committed, and what their column is called."""
    for corpus in CORPORA:
        for more, told in (("", ""), (FEW, ", 16 of a label")):
            name = f"{corpus}-methods{more}"
            if (RESULTS / f"{name}.json").exists():
                yield name, TITLES[corpus] + told


def _head(found: dict[str, Any]) -> str:
    counts = ", ".join(f"{max(len(run['stats']) for run in _runs(one)):,} ({title})" for title, one in found.items())
    one = next(iter(found.values()))
    protocol = one["protocol"]
    return (
        f"**SmolLM2-135M-Instruct**, its weights read from a file of four bits each (accuracy with its 95 % interval; "
        f"test rows: {counts}; {len(protocol['seeds'])} seeds, "
        f"{protocol['steps']} steps of {protocol['batch_size']}, at most {protocol['budgets'][0]:,} parameters but "
        f"for full tuning, products in {protocol['precision']}; "
        f"{', '.join(f'`results/{name}.json`' for name, _ in _results())}). *Stored*: parameters of an artifact. "
        "*Forgets*: what the model's own loss on prose that has nothing to do with the task rises by, nats a token, on "
        "the corpus where that is least and where it is most. "
        "*s*, *MB*: a run of one seed, scored on the test rows, on one of two cores that were both at work "
        f"({_processors(found)}), {_busy(found)}the mean over the corpora, and the most memory it took on any of them"
        f"{_elsewhere(found)}."
    )


def _on_cpu(one: dict[str, Any]) -> bool:
    return bool(one["machine"]["device"] == "cpu")


def _elsewhere(found: dict[str, Any]) -> str:
    """Which corpora ran on another device, whose seconds and memory are not among those told."""
    others = [title for title, one in found.items() if not _on_cpu(one)]
    names = dict.fromkeys(one["machine"]["device"] for one in found.values() if not _on_cpu(one))
    return f"; {' and '.join(others)} ran on an {' and an '.join(names)}, and are not in these two" if others else ""


def _processors(found: dict[str, Any]) -> str:
    """Each processor with the corpora that were timed on it."""
    titles: dict[str, list[str]] = {}
    for title, one in found.items():
        if not _on_cpu(one):
            continue
        titles.setdefault(one["machine"]["cpu"], []).append(title)
    return "; ".join(f"{name} for {' and '.join(of)}" for name, of in titles.items())


def _busy(found: dict[str, Any]) -> str:
    """Of which corpora the seconds were taken beside other work."""
    named = zip(_results(), found, strict=True)
    shared = [title for (name, _), title in named if name in BUSY and _on_cpu(found[title])]
    return f"for {' and '.join(shared)} beside other programs, " if shared else ""


def _runs(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [run for arm in result["arms"] for run in arm["runs"]]


def _row(name: str, results: list[dict[str, Any]]) -> str:
    arms = [next(arm for arm in one["arms"] if arm["name"] == name) for one in results]
    done = [arm for arm in arms if arm["score"] is not None]
    stored = f"{done[0]['parameters']['stored']:,}" if done else ""
    forgot = [arm["forgetting"]["change"] for arm in done if (arm["forgetting"] or {}).get("change") is not None]
    forgets = " to ".join(dict.fromkeys(f"{value:+.2f}" for value in (min(forgot), max(forgot)))) if forgot else ""
    timed = [arm for arm, one in zip(arms, results, strict=True) if arm["score"] is not None and _on_cpu(one)]
    runs = [run for arm in timed for run in arm["runs"]]
    seconds = fmean(run["seconds"] for run in runs if run["seconds"] is not None) if runs else 0
    most = max((run["memory_mb"] or 0 for run in runs), default=0)
    took = f"{seconds:.0f} | {most:,.0f}" if done and done[0]["parameters"]["trained"] else " | "
    return f"| {SHOWN.get(name, name)} | {' | '.join(map(_cell, arms))} | {stored} | {forgets} | {took} |"


def _cell(arm: dict[str, Any]) -> str:
    if arm["score"] is None:
        return str(arm["status"])
    low, high = arm["interval"]
    return f"{arm['score']:.3f} ({low:.3f}–{high:.3f})"
