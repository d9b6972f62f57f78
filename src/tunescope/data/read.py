"""Rows and hashes of what a data path names: a file, or a part of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunescope.data import conversations, corpus, corpus_name
from tunescope.data.row import check_lengths
from tunescope.data.rows_of_file import file_rows, file_sha256
from tunescope.errors import UserError


def read(path: str | Path, longest: int | None = None) -> list[dict[str, Any]]:
    """The rows of a file, each a ``Row``; or of one part of a corpus, NAME:FOLDER#PART (`tunescope.data.corpora`).

    JSONL: one object a line, blank lines skipped. CSV: a header, then RFC 4180. TSV: a header, then one row
    a line, with no quoting at all. All UTF-8, with or without a byte order mark. Lines end in LF or CRLF.
    Parquet: a row's line is its number; it is read by the package pyarrow.

    longest: characters that a field may have (default: `tunescope.data.row.LONGEST`).

    Raises:
        UserError: the file or one of its lines cannot be used.
    """
    rows = of_any_length(path)
    check_lengths(rows, longest)
    return rows


def of_any_length(path: str | Path) -> list[dict[str, Any]]:
    """As `read`, whatever a field's length: what a corpus is made of, whose own rows are looked at behind it."""
    named = corpus_name.parsed(path)
    rows = file_rows(Path(path)) if named is None else corpus.read(named)
    conversations.unfold(rows)
    return rows


def read_hashed(path: str | Path, longest: int | None = None) -> tuple[list[dict[str, Any]], str]:
    """The rows, and the hash of what they were read from.

    Raises:
        UserError: as `read`; or it was changed meanwhile, so that the hash is not of these rows.
    """
    before = sha256(path)
    rows = read(path, longest)
    if sha256(path) != before:
        raise UserError(f"{path} was changed while it was read. Ask again when it is whole.")
    return rows, before


def sha256(path: str | Path) -> str:
    """The hex SHA-256 of a file's bytes as they lie on the disk; of a corpus, `tunescope.data.corpus.digest`."""
    named = corpus_name.parsed(path)
    return file_sha256(path) if named is None else corpus.digest(named)
