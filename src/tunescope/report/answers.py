"""Which labels the arms answered: confusions, where two arms part, and the rows; of tasks that choose among labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tunescope.data.scores import ACCURACY
from tunescope.report import text

Json = dict[str, Any]
DRAWN = 24  # arms whose confusions are drawn
GRID = 12  # labels that a confusion matrix is drawn for
COMMONEST = 8  # confusions listed of an arm where there are more labels
SHADES = 9


def answers(results: Json, arms: Sequence[Json], best: str | None) -> Json | None:
    """What the page shows of the labels answered; None for other tasks and where no row's answer is known.

    arms: as `view` has them. best: the key of the arm that others are held against.
    """
    task = results.get("task") or {}
    labels = [str(label) for label in task.get("labels") or []]
    answered = [_answered(one) for one in results["arms"]]
    known = [(arm, answered[arm["index"]]) for arm in arms if arm["done"] and answered[arm["index"]]]
    if task.get("metric", ACCURACY) != ACCURACY or not labels or not known:
        return None
    against = next(((arm, own) for arm, own in known if arm["key"] == best), known[0])
    return {
        "labels": text.said(labels),
        "grids": [_confusion(arm, own, text.said(labels)) for arm, own in known[:DRAWN]],
        "left_out": f"Drawn are the {DRAWN} best of {len(known)} arms." if len(known) > DRAWN else "",
        "against": against[0]["name"],
        "beside": [_beside(arm, own, against[1]) for arm, own in known if arm is not against[0]],
        "rows": _rows(results.get("examples"), {arm["name"]: arm["group"] for arm in arms}, labels),
    }


def _answered(raw: Mapping[str, Any]) -> list[list[tuple[int, int]]]:
    """Run -> row -> (its label, the label answered), of the runs whose rows are known."""
    runs = [[(int(row[1]), int(row[2])) for row in run.get("stats") or () if len(row) > 2] for run in raw["runs"] or ()]
    return [run for run in runs if run]


def _confusion(arm: Json, runs: list[list[tuple[int, int]]], labels: list[str]) -> Json:
    """Counts over all seeds: a grid, its rows the labels that are right; or a list, where there are too many labels."""
    counts = Counter(pair for run in runs for pair in run)
    totals = Counter(label for run in runs for label, _ in run)
    shown = {"arm": arm["name"], "group": arm["group"], "seeds": len(runs), "grid": None, "list": []}
    if len(labels) <= GRID and all(max(pair) < len(labels) for pair in counts):
        places = range(len(labels))
        cells = [[_cell(counts[label, other], totals[label], label == other) for other in places] for label in places]
        return shown | {"grid": [{"label": labels[label], "cells": cells[label]} for label in places]}
    wrong = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]][:COMMONEST]
    named = [
        {"label": _named(labels, label), "other": _named(labels, other), **_cell(count, totals[label], False)}
        for (label, other), count in wrong
    ]
    return shown | {"list": named}


def _cell(count: int, total: int, right: bool) -> Json:
    share = count / total if total else 0.0
    shown = f"{100 * share:.0f}" if count else ""
    return {"shown": shown, "count": count, "of": total, "right": right, "shade": round(SHADES * share)}


def _named(labels: list[str], index: int) -> str:
    return labels[index] if index < len(labels) else f"label {index}"


def _beside(arm: Json, runs: list[list[tuple[int, int]]], best: list[list[tuple[int, int]]]) -> Json:
    """How many rows an arm and the best one have right and wrong, both at their first seed."""
    found = Counter(
        (label == answer, label == other, answer == other)
        for (label, answer), (_, other) in zip(runs[0], best[0], strict=False)
    )
    return {
        "arm": arm["name"],
        "group": arm["group"],
        "both": found[True, True, True],
        "this": found[True, False, False],
        "best": found[False, True, False],
        "neither": found[False, False, True] + found[False, False, False],
        "apart": sum(count for (_, _, same), count in found.items() if not same),
    }


def _rows(examples: Json | None, groups: Mapping[str, str], labels: list[str]) -> Json | None:
    """The rows that the results hold; None where they hold none, as those of an earlier version.

    examples and labels are as results.json has them: two labels may be shown by the same text and are still two.
    """
    if not examples or "apart" not in examples or not examples.get("rows"):
        return None
    names = [text.short(str(text.clean(name)), 80) for name in examples["arms"]]
    keyed = [(name, groups.get(name, "none")) for name in names]
    shown, whole = len(examples["rows"]), int(examples.get("of") or 0)
    part = f"All {whole:,} test rows"
    if shown < whole:
        part = f"{shown:,} of {whole:,} test rows: some spread evenly, and more of those on which the arms do not agree"
    return {
        "arms": names,
        "part": f"{part}; they do not agree on {int(examples['apart']):,}.",
        "rows": [_row(one, keyed, labels) for one in examples["rows"]],
    }


def _row(one: Json, arms: Sequence[tuple[str, str]], labels: list[str]) -> Json:
    """A row with its arms gathered by what they answered, those that are right first."""
    label, given = next(iter(one.get("references") or ()), ""), [str(answer) for answer in one["outputs"]]
    shares = [float((own or {}).get(answer) or 0.0) for own, answer in zip(one["scores"], given, strict=True)]
    order = sorted(dict.fromkeys(given), key=lambda answer: (answer != label, -given.count(answer)))
    return {
        "row": one.get("row"),
        "input": text.said(one.get("input") or ""),
        "label": text.said(label),
        "place": labels.index(label) if label in labels else -1,
        "right": " ".join(str(int(answer == label)) for answer in given),
        "answered": " ".join(str(order.index(answer)) for answer in given),
        "shares": " ".join(f"{share:g}" for share in shares),
        "answers": [
            {
                "label": text.said(answer),
                "is_right": answer == label,
                "arms": [
                    {
                        "arm": name,
                        "group": group,
                        "share": f"{share:.2f}" if share else "",
                        "all": _shares_in_words(own),
                    }
                    for (name, group), its, share, own in zip(arms, given, shares, one["scores"], strict=True)
                    if its == answer
                ],
            }
            for answer in order
        ],
    }


def _shares_in_words(shares: Mapping[str, float] | None) -> str:
    return ", ".join(f"{text.said(label)} {share:.3f}" for label, share in (shares or {}).items())
