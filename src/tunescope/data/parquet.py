"""Rows of a Parquet file, the form that data sets have on the Hugging Face hub."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.errors import Note, UserError
from tunescope.system import label_pairs

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"
TOGETHER = 30  # names in a line, for a terminal is shown no line of thousands of characters
OLDEST = 15  # before, pyarrow could be made to unpickle what a file holds


def parquet_rows(data: bytes, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row's number, from 1, and its columns: texts, numbers, lists and objects; dates and decimals as text.

    Numbers for which the file has names, as `datasets` writes them (ClassLabel), stay numbers; the names are told.

    Raises:
        UserError: the package pyarrow is not installed or too old; no whole Parquet file; two columns of one name; a
            column that pyarrow cannot convert.
    """
    table = _table(data, path)
    if len(set(table.column_names)) < len(table.column_names):
        twice = next(name for name in table.column_names if table.column_names.count(name) > 1)
        raise UserError(f"{path} has the column {twice!r} twice. Rename one.")
    for column, names in _named(table.schema.metadata or {}).items():
        warnings.warn(
            Note(f"Parquet: {column!r} holds numbers for names. To ask for these: {_words(names)}"), stacklevel=2
        )
    columns = [_values(table.column(name), name, path) for name in table.column_names]
    rows = (dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True))
    yield from enumerate(rows, start=1)


def _table(data: bytes, path: Path) -> pyarrow.Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{path} is Parquet, which the package pyarrow reads. Type: pip install pyarrow") from None
    if int(pyarrow.__version__.split(".")[0]) < OLDEST:
        raise UserError(
            f"{path}: pyarrow {pyarrow.__version__} may run what a file holds. Type: pip install --upgrade pyarrow"
        )
    try:
        return parquet.ParquetFile(pyarrow.BufferReader(data)).read()
    except (pyarrow.ArrowException, OSError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"{path} is no whole Parquet file, by pyarrow: {reason}") from problem


def _values(column: pyarrow.ChunkedArray, name: str, path: Path) -> list[Any]:
    """The column as it is, or as text where its values are no JSON. Others are not cast: pyarrow 26 fails at some."""
    from numpy import float16
    from pyarrow import ArrowException, string, types

    kind = column.type
    told = types.is_temporal(kind) and not types.is_duration(kind)
    if types.is_float16(kind):  # which pyarrow writes with the digits of a double
        return [None if one is None else float(str(float16(one))) for one in column.to_pylist()]
    short = types.is_float32(kind)  # 3.8 of so few digits is no 3.8 of a double
    try:
        text = column.cast(string()).to_pylist() if told or short or types.is_decimal(kind) else None
        found: list[Any] = column.to_pylist() if text is None else text
    except (ArrowException, ValueError) as problem:  # nanoseconds in a list, or a time zone that is not installed
        reason = str(problem).strip().splitlines()[0].rstrip(".")
        raise UserError(f"{path}: pyarrow cannot read the column {name!r}: {reason}. Leave it out.") from problem
    return [None if one is None else float(one) for one in found] if short else found


def _named(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Column -> the names of its numbers, where the library datasets wrote the file."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        labels = {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # whatever another program wrote there
        return {}
    return {name: names for name, names in labels.items() if names and all(isinstance(one, str) for one in names)}


def _words(names: list[str]) -> str:
    """The option that asks for these, as a shell takes it, over several lines where they are many."""
    words = [(str(number), name) for number, name in enumerate(names)]
    parts = [dict(words[at : at + TOGETHER]) for at in range(0, len(words), TOGETHER)]
    return " \\\n  ".join(map(label_pairs.typed, parts))
