"""The numbers of a results file, a cell a number: of a recipe's table, of a comparison, and of results/starts.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from tunescope.report.cells import Cell
from tunescope.report.verdict.pairs import Pairs
from tunescope.report.verdict.verdict import AGAINST_DELTA, untold

RESULTS = Path(__file__).resolve().parent.parent / "results"
FORGETS = "forgets"  # a column of a comparison
PAIRS = 3  # of seeds, at least
# whose seconds were taken while other programs used the cores
BUSY = {"trec", "trec-smollm2", "ag_news-smollm2", "sst2-methods", "ag_news-methods", "rte-methods"} | {
    f"{corpus}-methods-16" for corpus in ("sst2", "trec", "ag_news")
}


@dataclass(frozen=True)
class Number:
    """mean, with its interval over seeds where there are several; paper: the published one, as its cell has it.

    values: one a seed, where the file keeps them.
    """

    mean: float
    interval: tuple[float, float] | None
    paper: str = ""
    values: tuple[float, ...] = ()

    @property
    def shown(self) -> str:
        if self.interval is None:
            return self.bare
        return f"{self.bare} [{self._written(self.interval[0])}, {self._written(self.interval[1])}]"

    @property
    def bare(self) -> str:
        return self._written(self.mean)

    def _written(self, value: float) -> str:
        if self.interval is None and 0 < abs(self.mean) < 5e-4:
            return f"{value:.1e}"
        return f"{value:.{1 if self.mean >= 2 else 3}f}"


@cache
def read(file: str) -> dict[str, Any]:
    """results/`file`.json."""
    found: dict[str, Any] = json.loads((RESULTS / f"{file}.json").read_text("utf-8"))
    return found


def answer(result: dict[str, Any]) -> str:
    """A comparison's verdict; of a context that suffices also the deltas beside which nothing is told.

    And of an unstable one in how many seeds: those whose own run passes as the chosen one does.
    """
    verdict, evidence = result["verdict"], result["verdict"]["evidence"]
    told = f"*{verdict['answer']}*"
    if verdict["reason"] not in AGAINST_DELTA:
        return told
    if verdict["reason"] == "unstable":
        told += f", found in {evidence['suffice']} of {evidence['context']['near_best'][1]} seeds"
    others = ", ".join(pair["other"] for pair in untold(evidence, verdict["reason"]))
    return f"{told}; beside {others} not told" if others else told


@cache
def numbers(file: str) -> dict[str, dict[str, Number]]:
    """Row -> column -> number.

    The columns of a comparison are its metric and "forgets", those of the starts their corpora.
    """
    result = read(file)
    if "table" in result:
        columns = result["table"]["columns"]
        return {
            row["label"]: {
                column: Number(cell["mean"], _pair(cell["interval"]), cell["paper"], tuple(cell["values"]))
                for column, cell in zip(columns, row["cells"], strict=False)
                if cell["mean"] is not None
            }
            for row in result["table"]["rows"]
        }
    if "arms" in result:
        metric = result["task"]["metric"]
        done = [arm for arm in result["arms"] if arm["score"] is not None]
        return {arm["name"]: {metric: Number(arm["score"], _pair(arm["interval"]))} | _forgets(arm) for arm in done}
    found: dict[str, dict[str, Number]] = {}
    for corpus, made in result.items():
        for arm in made["arms"]:
            if arm["status"] == "done":
                mean = sum(arm["test"]) / len(arm["test"])
                found.setdefault(arm["name"], {})[corpus] = Number(mean, None, values=tuple(arm["test"]))
    return found


def paired(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, tuple[float, float]] | None:
    """The mean difference of values of the same seeds, and its 95 % interval; None where they are no such pairs."""
    if len(one) != len(other) or len(one) < PAIRS:
        return None
    less = Cell(tuple(first - second for first, second in zip(one, other, strict=True)))
    return (fmean(less.values), less.interval) if less.interval else None


def compared(file: str, one: str, other: str) -> tuple[float, tuple[float, float]] | None:
    """The same of two arms of a comparison, by its pairs of rows and seeds, made anew where it stored none of the two.

    None where the file has no such arms, or no rows of theirs. A stored pair is of 95 %, one made anew of the level of
    the comparison's looks, which is no less.
    """
    for pair in read(file).get("comparisons", ()):
        low, high = pair["interval"] or (0.0, 0.0)
        if pair["interval"] and (pair["a"], pair["b"]) == (one, other):
            return pair["difference"], (low, high)
        if pair["interval"] and (pair["b"], pair["a"]) == (one, other):
            return -pair["difference"], (-high, -low)
    arms = {arm["name"]: arm for arm in read(file).get("arms", ()) if arm.get("status") == "done" and arm.get("runs")}
    if not {one, other} <= set(arms):
        return None
    made = Pairs(read(file), read(file)["task"]["metric"], arms.values()).of(arms[one], arms[other])
    return (made.difference, (made.low, made.high)) if made else None


def _forgets(arm: dict[str, Any]) -> dict[str, Number]:
    change = (arm.get("forgetting") or {}).get("change")
    return {} if change is None else {FORGETS: Number(change, None)}


def number(file: str, row: str, column: str) -> Number:
    """A cell of a results file. Raises KeyError where the file has no such row or column."""
    return numbers(file)[row][column]


def _pair(interval: list[float] | None) -> tuple[float, float] | None:
    return (interval[0], interval[1]) if interval else None
