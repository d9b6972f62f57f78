"""Domains never trained on: WebNLG's test part has categories that its training part lacks.

The choice of the rate is made on development rows, which are of seen categories, as in the paper.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.data import scores
from tunescope.errors import UserError
from tunescope.report.cells import Cell, Table
from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Found, Settings

TITLE = "Domains never trained on"
SOURCE = "Li and Liang 2021 (arXiv:2101.00190), table 1 (WebNLG, GPT-2 medium)"
TAKES = corpus_table.TAKES
KEEPS = True

COLUMNS = ("seen", "unseen", "all")


def _paper(*values: str) -> dict[str, dict[str, str]]:
    return {"webnlg": dict(zip(COLUMNS, values, strict=True))}


LINES = (
    Line("full tuning", "full", paper=_paper("64.2", "27.7", "46.5")),
    Line("adapter, 3 %", "adapter", share=0.03, paper=_paper("60.4", "48.3", "54.9")),
    Line("adapter, .1 %", "adapter", share=0.001, paper=_paper("54.5", "45.1", "50.2")),
    Line("LoRA, 2 %", "lora", share=0.02),
    Line("prefix, 2 %", "prefix", share=0.02),
    Line("prefix, .1 %", "prefix", share=0.001, paper=_paper("62.9", "45.6", "55.1")),
)

EXAMPLES = (
    Line("prefix, 2 %, begun as examples", "prefix:init_from=demos", share=0.02),
    Line("prefix, .1 %, begun as examples", "prefix:init_from=demos", share=0.001),
)


def settings(ask: Ask) -> Settings:
    more = EXAMPLES if ask.protocol == "tuned" and not ask.quick else ()
    lines = corpus_table.with_lengths(ask, (*LINES, *more), {"webnlg": {"prefix, .1 %": 5}})  # of their code
    made = corpus_table.settings(ask, lines, published.course(ask, published.WEBNLG), published.rows(ask))
    if not all("seen" in row for row in corpus_table.parts(made)["test"]):
        raise UserError(f"{ask.name} --data {ask.data}: this corpus has no domains. Give one that has: webnlg:FOLDER.")
    return made


worlds, units = corpus_line.worlds, corpus_table.units


def work(settings: Settings, unit: dict[str, Any], folder: Path) -> dict[str, Any]:
    given = corpus_table.parts(settings)
    arm = corpus_line.compared(settings, unit, folder, given)
    found = corpus_line.outcome(arm, settings["metrics"], folder)
    seen = list({row["input"]: row["seen"] for row in given["test"]}.values())
    runs = arm["runs"] if arm["status"] == "done" else []
    domains = [_scores(settings["metrics"][0], run["stats"], seen) for run in runs]
    return found | {"domains": domains, "inputs": len(seen), "seen": sum(seen)}


def _scores(metric: str, stats: Sequence[Sequence[float]], seen: Sequence[bool]) -> Mapping[str, float]:
    """The metric over the inputs of seen categories, of unseen ones, and of all."""
    parts = {
        "seen": [one for one, known in zip(stats, seen, strict=True) if known],
        "unseen": [one for one, known in zip(stats, seen, strict=True) if not known],
        "all": list(stats),
    }
    return {name: scores.aggregate(metric, rows)[metric] for name, rows in parts.items() if rows}


def table(settings: Settings, found: Found) -> Table:
    """The corpus's metric over seen, unseen and all categories."""
    metric, rows = settings["metrics"][0], []
    for line, (_, outcome) in zip(settings["lines"], found, strict=True):
        cells = [Cell(text=f"{outcome['stored']:,}"), Cell(text=outcome["rate"])]
        for column in COLUMNS:
            values = tuple(one[column] for one in outcome["domains"] if column in one)
            paper = line["paper"].get(column, "")
            cells.append(
                Cell(values, paper, digits=2, bounds=corpus_line.bounds(metric))
                if values
                else Cell(text=outcome["reason"] or "none")
            )
        rows.append((line["label"], cells))
    inputs, seen = found[0][1]["inputs"], found[0][1]["seen"]
    told = [
        f"{metric} over {inputs:,} inputs, {seen:,} of them of seen categories.",
        *corpus_line.notes(settings, found),
    ]
    return Table(("parameters", "rate", *COLUMNS), rows, told)
