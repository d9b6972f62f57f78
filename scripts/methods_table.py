"""Every kind of method on SmolLM2-135M in one table, a column a corpus: of results/*-methods*.json."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from scripts.numbers import BUSY, RESULTS, answer, read
from scripts.results import CORPORA

TITLES = {"sst2": "SST-2", "trec": "TREC", "ag_news": "AG News", "rte": "RTE"}
ALL, FEW = "", "-16"  # of the rows; the ends of the files' names
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

    What it forgets is the least and the most of the corpora, the seconds are their mean, the memory is the most. Below
    it the same from few rows.
    """
    found, few = _results(ALL), _results(FEW)
    heads = [*found, "stored", "forgets", "s", "MB"]
    rows = [_row(name, found.values()) for name in _names(found)]
    whole = _lines(heads, rows, [*map(answer, found.values()), "", "", "", ""])
    fewer = [
        f"{_scores(name, arms)} {_forgets(arms)} |" for name in _names(few) for arms in [_arms(name, few.values())]
    ]
    below = _lines([*few, "forgets"], fewer, [*map(answer, few.values()), ""])
    return "\n".join([_head(found), "", *whole, "", _few_head(few), "", *below])


def _lines(heads: list[str], rows: list[str], last: list[str]) -> list[str]:
    first = [f"| method | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    return [*first, *rows, f"| **verdict** | {' | '.join(last)} |"]


def _names(found: dict[str, Any]) -> list[str]:
    return [arm["name"] for arm in next(iter(found.values()))["arms"]]


def _results(more: str) -> dict[str, Any]:
    """Those that were committed, by what their column is called."""
    names = {TITLES[corpus]: f"{corpus}-methods{more}" for corpus in CORPORA}
    return {title: read(name) for title, name in names.items() if (RESULTS / f"{name}.json").exists()}


def _files(found: dict[str, Any], more: str) -> str:
    of = {title: corpus for corpus, title in TITLES.items()}
    return ", ".join(f"`results/{of[title]}-methods{more}.json`" for title in found)


def _few_head(found: dict[str, Any]) -> str:
    return (
        "**The same from sixteen rows of each label**, and as many others to choose by (test rows and all else as above"
        f"{_elsewhere(found)}; {_files(found, FEW)}):"
    )


def _head(found: dict[str, Any]) -> str:
    counts = ", ".join(f"{max(len(run['stats']) for run in _runs(one)):,} ({title})" for title, one in found.items())
    one = next(iter(found.values()))
    protocol, told = one["protocol"], _elsewhere(found)
    return (
        f"**SmolLM2-135M-Instruct**, its weights read from a file of four bits each (accuracy with its 95 % interval; "
        f"test rows: {counts}; {len(protocol['seeds'])} seeds, "
        f"{protocol['steps']} steps of {protocol['batch_size']}, at most {protocol['budgets'][0]:,} parameters but "
        f"for full tuning, products in {protocol['precision']}; "
        f"{_files(found, ALL)}). *Stored*: parameters of an artifact. "
        "*Forgets*: what the model's own loss on prose that has nothing to do with the task rises by, nats a token, on "
        "the corpus where that is least and where it is most. "
        "*s*, *MB*: a run of one seed, scored on the test rows, on one of two cores that were both at work "
        f"({_processors(found)}), {_busy(found)}the mean over the corpora, and the most memory it took on any of them"
        f"{told}{', and is not in these two' if told else ''}."
    )


def _on_cpu(one: dict[str, Any]) -> bool:
    return bool(one["machine"]["device"] == "cpu")


def _elsewhere(found: dict[str, Any]) -> str:
    """Which corpora ran on another device."""
    others = [title for title, one in found.items() if not _on_cpu(one)]
    names = dict.fromkeys(one["machine"]["device"] for one in found.values() if not _on_cpu(one))
    listed = " and ".join([*([", ".join(others[:-1])] if others[1:] else []), *others[-1:]])
    return f"; {listed} ran on an {' and an '.join(names)}" if others else ""


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
    shared = [TITLES[of] for of in CORPORA if f"{of}-methods" in BUSY and _on_cpu(found[TITLES[of]])]
    return f"for {' and '.join(shared)} beside other programs, " if shared else ""


def _runs(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [run for arm in result["arms"] for run in arm["runs"]]


def _arms(name: str, results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [next(arm for arm in one["arms"] if arm["name"] == name) for one in results]


def _scores(name: str, arms: list[dict[str, Any]]) -> str:
    return f"| {SHOWN.get(name, name)} | {' | '.join(map(_cell, arms))} |"


def _forgets(arms: list[dict[str, Any]]) -> str:
    forgot = [arm["forgetting"]["change"] for arm in arms if (arm["forgetting"] or {}).get("change") is not None]
    return " to ".join(dict.fromkeys(f"{value:+.2f}" for value in (min(forgot), max(forgot)))) if forgot else ""


def _row(name: str, results: Iterable[dict[str, Any]]) -> str:
    arms = _arms(name, results)
    done = [arm for arm in arms if arm["score"] is not None]
    stored = f"{done[0]['parameters']['stored']:,}" if done else ""
    timed = [arm for arm, one in zip(arms, results, strict=True) if arm["score"] is not None and _on_cpu(one)]
    runs = [run for arm in timed for run in arm["runs"]]
    seconds = fmean(run["seconds"] for run in runs if run["seconds"] is not None) if runs else 0
    most = max((run["memory_mb"] or 0 for run in runs), default=0)
    took = f"{seconds:.0f} | {most:,.0f}" if done and done[0]["parameters"]["trained"] else " | "
    return f"{_scores(name, arms)} {stored} | {_forgets(done)} | {took} |"


def _cell(arm: dict[str, Any]) -> str:
    if arm["score"] is None:
        return str(arm["status"])
    low, high = arm["interval"]
    return f"{arm['score']:.3f} ({low:.3f}–{high:.3f})"
