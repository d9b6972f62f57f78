"""A run's arms as plain rows, and these as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunescope.report import text
from tunescope.report.card import escaped
from tunescope.report.view import view

Row = dict[str, Any]
SPECIAL = {one: f"\\{one}" for one in "&%$#_{}"} | {
    one: f"{{{one}}}" for one in "[]"
}  # or a line break would take them as its own
SPECIAL |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


def rows(results: Mapping[str, Any]) -> list[Row]:
    """One dict an arm, best first; numbers are numbers, None where there is none.

    {"arm", "spec", "group", "status", "reason", "score", "low", "high", "difference", "difference_low",
    "difference_high", "stored", "trained", "live", "learning_rate", "learning_rates", "seeds", "seconds", "memory_mb"},
    and NAME, NAME_low and NAME_high of each other metric. Learning rates of composed methods are joined by "+", the
    first alone is the number. low and high are a 95 % interval; the difference is to the arm that is
    best on dev, paired.

    Raises:
        UserError: the results are of another version or have no arms.
    """
    seen = view(dict(results))
    pairs = {side: one for one in seen.raw["comparisons"] for side in (_other(one, seen.best_key),) if side}
    return [_row(arm, pairs.get(arm["key"]), seen.best_key) for arm in seen.arms]


def _other(pair: Mapping[str, Any], best: str | None) -> str | None:
    """The arm that the best one is compared with here."""
    sides = [str(pair.get("a")), str(pair.get("b"))]
    return next((side for side in sides if side != best), None) if best in sides and pair.get("interval") else None


def _row(arm: Mapping[str, Any], pair: Mapping[str, Any] | None, best: str | None) -> Row:
    low, high = arm["interval"] if arm["done"] and arm["interval"] else (None, None)
    difference: tuple[float | None, ...] = (None, None, None)
    if pair:
        sign = 1 if pair["a"] == arm["key"] else -1
        difference = (sign * pair["difference"], *sorted(sign * edge for edge in pair["interval"]))
    elif arm["key"] == best:
        difference = (0.0, None, None)
    found = {
        "arm": arm["name"],
        "spec": arm["spec"],
        "group": arm["group"],
        "status": arm["status"],
        "reason": arm["reason"],
        "score": arm["score"] if arm["done"] else None,
        "low": low,
        "high": high,
        **dict(zip(("difference", "difference_low", "difference_high"), difference, strict=True)),
        **{key: arm[key] for key in ("stored", "trained", "live", "learning_rate")},
        "learning_rates": "+".join(f"{rate:g}" for rate in arm["learning_rates"]),
        "seeds": len(arm["runs"]),
        "seconds": arm["seconds"],
        "memory_mb": arm["memory"],
    }
    for name, own in (arm["others"] if arm["done"] else {}).items():
        edges = own.get("interval") or (None, None)
        found |= {str(name): own.get("score"), f"{name}_low": edges[0], f"{name}_high": edges[1]}
    return found


def as_csv(results: Mapping[str, Any]) -> str:
    """Every column of `rows`; what a spreadsheet would take for a formula has an apostrophe in front."""
    found = rows(results)
    names = list(dict.fromkeys(name for row in found for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _cell(row.get(name)) for name in names} for row in found])
    return out.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def as_markdown(results: Mapping[str, Any]) -> str:
    """A table, and beneath it what its differences do not say."""
    head, body = _shown(results, escaped, "–")
    rule, note = ["---", *["---:"] * (len(head) - 1)], view(dict(results)).uncorrected
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body)) + (f"\n{note}\n" if note else "")


def as_latex(results: Mapping[str, Any]) -> str:
    """A tabular for booktabs, with intervals; the best score is bold, and a comment tells what differences do not."""
    head, body = _shown(results, _latex, "--")
    best = max((one["score"] for one in rows(results) if one["score"] is not None), default=None)
    for line, one in zip(body, rows(results), strict=True):
        if best is not None and one["score"] == best:
            line[1] = rf"\textbf{{{line[1]}}}"
    note = view(dict(results)).uncorrected
    lines = [
        "% \\usepackage{booktabs}",
        *([f"% {note}"] if note else []),
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\toprule",
        *(" & ".join(line) + r" \\" for line in (head,)),
        r"\midrule",
        *(" & ".join(line) + r" \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _shown(results: Mapping[str, Any], plain: Callable[[str], str], nothing: str) -> tuple[list[str], list[list[str]]]:
    """The head and the arms: score, interval, those of each other metric, difference, stored.

    `plain` makes a text harmless there.
    """
    seen = view(dict(results))
    head = ["arm", seen.frame.metric, "95 % interval", *seen.also, f"against {seen.best or 'the best'}", "stored"]
    body = []
    for arm in seen.arms:
        difference, span = arm["behind"]
        others = [_with(one["shown"], one["span"]) for one in arm["also"]]
        cells = [arm["shown"], arm["span"], *others, _with(difference, span), text.count(arm["stored"])]
        cells = cells if arm["done"] else [arm["status"], *[""] * (len(cells) - 1)]
        body.append([plain(arm["name"]), *(plain(cell) if cell else nothing for cell in cells)])
    return [plain(name) for name in head], body


def _with(value: str, span: str) -> str:
    return f"{value} ({span})" if span else value


def _latex(value: str) -> str:
    cleaned = " ".join(str(text.clean(value)).split())
    return "".join(SPECIAL.get(one, one) for one in cleaned).replace("−", "$-$").replace("↓", r"$\downarrow$")


FORMS: dict[str, Callable[[Mapping[str, Any]], str]] = {"csv": as_csv, "markdown": as_markdown, "latex": as_latex}


def columns(found: Sequence[Row]) -> dict[str, list[Any]]:
    """The rows as columns, None where a row lacks one."""
    names = dict.fromkeys(name for row in found for name in row)
    return {name: [row.get(name) for row in found] for name in names}
