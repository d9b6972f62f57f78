"""What the reader of a corpus gives back: its rows, and notes on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunescope.data.row import Row


@dataclass(frozen=True)
class Found:
    """Rows with the fields that tasks use, and notes: what was left out, with its count, and what was chosen."""

    rows: list[Row]
    notes: tuple[str, ...] = ()


def row(values: Mapping[str, Any], source: Mapping[str, Any]) -> Row:
    """A row with the file and line of the one that it is made from."""
    assert isinstance(source, Row)
    return Row(values, source.file, source.line)


def left_out(count: int, what: str) -> tuple[str, ...]:
    """The note on what was left out: none where nothing was."""
    return (f"{count:,} {what} left out",) if count else ()


def short(path: Path) -> str:
    """A file's name with the folder that it is in: corpora repeat file names from folder to folder."""
    return f"{path.parent.name}/{path.name}" if path.parent.name else path.name
