"""A recipe's table as text and as JSON: our numbers with their intervals beside the paper's."""

from typing import Any

from tunescope.report.cells import Cell, Table


def as_json(table: Table) -> dict[str, Any]:
    """Columns, rows with every value, and notes."""
    rows = [{"label": label, "cells": [_cell(cell) for cell in cells]} for label, cells in table.rows]
    return {"columns": list(table.columns), "rows": rows, "notes": table.notes, "numbers": table.numbers}


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "mean": cell.mean,
        "interval": None if cell.interval is None else list(cell.interval),
        "seeds": len(cell.values),
        "values": list(cell.values),
        "paper": cell.paper,
        "text": cell.text,
    }


def ours(cell: Cell) -> str:
    """ "0.912 [0.88, 0.94]", or the cell's text."""
    if cell.mean is None:
        return cell.text or "–"
    form = f".{cell.digits}{'g' if 0 < abs(cell.mean) < 1e-3 else 'f'}"
    number = f"{cell.mean:{form}}"
    if cell.interval is None:
        return number
    low, high = cell.interval
    return f"{number} [{low:{form}}, {high:{form}}]"


def as_text(title: str, table: Table) -> str:
    """The table in columns: ours, and the paper's in brackets after it where the paper has the cell."""
    head = ["", *table.columns]
    body = [
        [label, *(ours(cell) + (f" (paper: {cell.paper})" if cell.paper else "") for cell in cells)]
        for label, cells in table.rows
    ]
    widths = [max(len(row[i]) for row in [head, *body] if i < len(row)) for i in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip() for row in [head, *body]
    ]
    return "\n".join([title, "", *lines, *([""] if table.notes else []), *table.notes])
