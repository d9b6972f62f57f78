"""A recipe's table as Markdown: ours with its interval over seeds, the paper's in brackets, its notes below."""

from typing import Any

from tunescope.reproduce.corpus_line import at_an_edge

STOPS = "a run ends when 8 scores in a row are no better"


def table(result: dict[str, Any]) -> str:
    table = result["table"]
    lines = [f"**{result['title']}** (`{result['command']}`)", "", "| | " + " | ".join(table["columns"]) + " |"]
    lines.append("|---" * (len(table["columns"]) + 1) + "|")
    for row in table["rows"]:
        lines.append(f"| {row['label']} | " + " | ".join(map(_cell, row["cells"])) + " |")
    notes = _notes(result)
    return "\n".join([*lines, "", " ".join(notes)] if notes else lines)


def _notes(result: dict[str, Any]) -> list[str]:
    """The table's own; results of earlier versions get the note on rates too, and the right word for training rows."""
    notes = [
        note.replace(
            "Most inputs of a part: train 10,000, dev 100.", "At most 10,000 rows of train and 100 inputs of dev."
        )
        .replace("Most inputs of a part: train 500, dev 100.", "At most 500 rows of train and 100 inputs of dev.")
        .replace("Most inputs of a part: dev 100.", "At most 100 inputs of dev.")
        .replace("`tunescope.sites`", "`tunescope.models.sites`")
        .replace("Steps and rows of each, ours:", f"Steps at most ({STOPS}) and rows of each, ours:")
        for note in result["table"]["notes"]
    ]
    if "lines" in result["settings"] and isinstance(result["units"], list):
        found = [(one["unit"], one["outcome"]) for one in result["units"]]
        notes += [note for note in at_an_edge(result["settings"], found) if note not in notes]
    return [*notes, *_runs(result["table"]["rows"], notes)]


def _runs(rows: list[dict[str, Any]], notes: list[str]) -> list[str]:
    """Of how many runs an interval is, where the table's own notes do not say it of ours."""
    found = {cell["seeds"] for row in rows for cell in row["cells"] if cell["interval"]}
    told = " ".join(note for note in notes if not note.startswith("The paper:"))
    if not found or any(f"{most} {what}" in told for most in found for what in ("seeds", "draws", "subsets")):
        return []
    return [f"Where an interval stands, ours is of {' or '.join(map(str, sorted(found)))} runs."]


def _cell(cell: dict[str, Any]) -> str:
    """Ours with its interval over seeds, then the paper's in brackets."""
    ours = cell["text"] if cell["mean"] is None else _number(cell["mean"])
    if cell["interval"]:
        ours += " [" + ", ".join(map(_number, cell["interval"])) + "]"
    return f"{ours} ({cell['paper']})" if cell["paper"] else ours


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.2g}"
