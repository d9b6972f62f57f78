"""Texts of a file, one a line or one a row."""

from __future__ import annotations

from pathlib import Path

from tunescope.data import corpus_name
from tunescope.data.parquet import SUFFIX
from tunescope.data.read import read
from tunescope.data.row import value
from tunescope.data.rows_of_file import FORMATS, text_of
from tunescope.errors import UserError


def texts(path: str, count: int, longest: int | None = None) -> list[str]:
    """The first `count` texts of a file: one a line, or in the field "text" of a file of rows.

    longest: characters that such a field may have (default: `tunescope.data.row.LONGEST`).

    Raises UserError for a file that cannot be read, and for one without a text.
    """
    plain = Path(path).with_suffix("") if path.lower().endswith(".gz") else Path(path)
    if plain.suffix.lower() in (*FORMATS, SUFFIX) or corpus_name.parsed(path) is not None:
        found = [value(row, "text", index) for index, row in enumerate(read(path, longest))]
    else:
        found = text_of(path).split("\n")
    found = [text.strip() for text in found if text.strip()][:count]
    if not found:
        raise UserError(f"{path} has no text. Give one text a line, or JSONL with the field 'text'.")
    return found
