"""Rows from a JSONL, CSV or TSV file, plain or gzipped, or from Parquet; every fault is named with its line."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import os
import sys
import warnings
import zlib
from collections.abc import Iterator
from errno import ENOENT
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from tunescope.data import parquet
from tunescope.data.row import Row, also, check_characters
from tunescope.errors import Note, UserError
from tunescope.system import shell
from tunescope.system.say import visible

SMALL, GROWTH = 2**26, 100  # bytes that any gzip file may unpack to, and how often its own size a larger one may
GZIP, PARQUET = b"\x1f\x8b", b"PAR1"  # what such files begin with
FORMATS = (".jsonl", ".ndjson", ".csv", ".tsv")
TABLES = {
    ".feather": "read_feather",
    ".xlsx": "read_excel",
}  # and what of pandas reads them


def file_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL, CSV, TSV or Parquet file, as `read` says.

    Raises:
        UserError: the file or one of its lines cannot be used.
    """
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if not os.path.exists(path):
        _fail(path, FileNotFoundError(ENOENT, os.strerror(ENOENT)))
    if os.path.isdir(path):
        raise UserError(f"{path} is a folder, and rows are in a file. Give that; a corpus by its name, NAME:FOLDER.")
    if path.suffix.lower() == parquet.SUFFIX:
        found = parquet.parquet_rows(content(path), path)
    elif plain.suffix.lower() not in FORMATS:
        raise UserError(
            f"{path}: the name tells the format, and '{''.join(path.suffixes[-2:])}' is not known. "
            f"Allowed: {', '.join(FORMATS)}, each also with .gz; {parquet.SUFFIX}. {_converting(path)}"
        )
    else:
        parse = {".csv": _csv_rows, ".tsv": _tsv_rows}.get(plain.suffix.lower(), _json_rows)
        found = parse(text_of(path), path)
    rows: list[dict[str, Any]] = []
    for line, values in found:
        check_characters(values, f"{path} line {line}")
        rows.append(Row(values, path.name, line))
    if not rows:
        raise UserError(f"{path} has no rows. Give a file with at least one row.")
    return rows


def _converting(path: Path) -> str:
    """What to do with a file of another format. The name that it gets is of no file that is there."""
    if path.suffix.lower() == ".gz" and path.with_suffix("").suffix.lower() == parquet.SUFFIX:
        return f"Parquet is packed by itself. Unpack it: gunzip {shell.path(path)}"
    if (reader := TABLES.get(path.suffix.lower())) is None:
        return "Rename or convert the file."
    names = (str(path.with_suffix(f"{'' if at == 1 else f'.{at}'}.jsonl")) for at in count(1))
    free = next(name for name in names if not os.path.exists(name))
    made = f"pandas.{reader}({str(path)!r}).to_json({free!r}, orient='records', lines=True)"
    return f"Convert it with pandas: python -c {shell.word(f'import pandas; {made}')}"


def text_of(path: str | Path) -> str:
    """A UTF-8 file's text, plain or gzipped, without a byte order mark.

    Raises:
        UserError: the file cannot be read, is empty, or is no text.
    """
    return _decoded(content(Path(path)), Path(path))


def file_sha256(path: str | Path) -> str:
    """The hex SHA-256 of a file's bytes as they lie on the disk; UserError where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        _fail(path, error)


def _fail(path: str | Path, error: OSError) -> NoReturn:
    raise UserError(f"Cannot read {path}: {error.strerror or error}. Check the path.") from error


def content(path: Path) -> bytes:
    """A file's bytes, unpacked where its name ends in .gz. Raises UserError: it cannot be read, or is empty."""
    try:
        found = _unpacked(path) if path.suffix.lower() == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        if path.read_bytes()[:2] != GZIP:
            raise UserError(
                f"{path} is not packed by gzip, and its name says so: "
                f"mv {shell.path(path)} {shell.path(path.with_suffix(''))}"
            ) from error
        raise UserError(f"{path} is not a whole gzip file ({error}). Compress it again: gzip FILE.") from error
    except OSError as error:
        _fail(path, error)
    if not found.strip():
        raise UserError(f"{path} is empty. Give a file with at least one row.")
    return found


def _unpacked(path: Path) -> bytes:
    """What a gzip file holds; UserError for one that would grow a hundredfold, as no text does, and fill the memory."""
    most = max(SMALL, GROWTH * path.stat().st_size)
    with gzip.open(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise UserError(
            f"{path} unpacks to more than {most:,} bytes, {GROWTH} times its own size, as no text does. If it is "
            "yours, unpack it and give the file: gunzip FILE"
        )
    return found


def _decoded(content: bytes, path: Path) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if content[:2] == GZIP:
            raise UserError(
                f"{path} is packed by gzip, and its name does not say so: "
                f"mv {shell.path(path)} {shell.path(f'{path}.gz')}"
            ) from error
        if content[:4] == PARQUET:
            raise UserError(
                f"{path} is Parquet, and its name does not say so: "
                f"mv {shell.path(path)} {shell.path(path.with_suffix('.parquet'))}"
            ) from error
        wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        shown = error.object[error.start]  # utf-8-sig counts from behind the mark
        start = error.start + len(content) - len(error.object)
        raise UserError(
            f"{path} line {content[:start].count(10) + 1}: byte {start} (0x{shown:02x}) is not UTF-8. "
            f"Convert the file: iconv -f {'UTF-16' if wide else 'LATIN1'} -t UTF-8 OLD > NEW "
            f"({'it looks like UTF-16' if wide else 'with the encoding it really has'})."
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(
            f"{path} line {line} holds a NUL character, so it is not a text file. Remove it: tr -d '\\000'."
        )
    return text


def _json_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    for at, (number, line) in enumerate(lines):
        try:
            values = _parsed(line)
        except ValueError as error:
            others = [other for other, later in lines[at + 1 :] if not _is_json(later)]
            raise UserError(
                f"{path} line {number} is not JSON: {error}. It reads {_excerpt(line)}.{also(others)} "
                'Each line must be one whole object, such as {"text": "...", "label": "..."}.'
            ) from error
        if not isinstance(values, dict):
            raise UserError(
                f"{path} line {number} is a {type(values).__name__}, not an object: {_excerpt(line)}. "
                "Each line must be one object; for a file that is one list, type: jq -c '.[]' OLD > NEW.jsonl"
            )
        yield number, values


def _parsed(line: str) -> Any:
    """Raises ValueError for what is not JSON."""
    try:
        return json.loads(
            line, object_pairs_hook=_distinct, parse_constant=_not_json, parse_float=_float, parse_int=_int
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _is_json(line: str) -> bool:
    try:
        _parsed(line)
    except ValueError:
        return False
    return True


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field '{next(n for n in names if names.count(n) > 1)}' is there twice")
    return values


def _float(text: str) -> float:
    """Two numbers that are beyond the largest would be one, infinity."""
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]} is beyond the largest number that there is")
    return found


def _int(text: str) -> int:
    """Python reads no more digits than its limit, and says so by a function that nobody can call from here."""
    digits, most = len(text.lstrip("-")), sys.get_int_max_str_digits()
    if 0 < most < digits:
        raise ValueError(f"a number of {digits:,} digits, where {most:,} are read at most: write it in quotes, as text")
    return int(text)


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _excerpt(line: str, width: int = 60) -> str:
    line = line.strip()
    return repr(line if len(line) <= width else line[: width - 3] + "...")


def _csv_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    limit = csv.field_size_limit(sys.maxsize)  # the module's limit is 128 KiB a field, for all of the process
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        start, records = 1, []
        try:
            for record in reader:
                records.append((start, record))
                start = reader.line_num + 1
        except csv.Error as error:
            raise UserError(
                f"{path}: the row that begins on line {start} is not CSV: {error}. "
                'Separate fields by commas, quote one with commas, quotes or line ends, and write " inside it as "".'
            ) from error
    finally:
        csv.field_size_limit(limit)
    return _named(iter(records), path)


def _tsv_rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = ((n, line.removesuffix("\r")) for n, line in enumerate(text.split("\n"), start=1))
    records = [(n, line.split("\t") if line else []) for n, line in lines]
    if quoted := sum(_is_quoted(cell) for _, record in records for cell in record):
        note = (
            "of the fields look quoted as in CSV. A TSV has no quoting, so their quotes are text: else save it as CSV."
        )
        warnings.warn(Note(f"{path}: {quoted:,} {note}"), stacklevel=2)
    return _named(iter(records), path)


def _is_quoted(cell: str) -> bool:
    """Between quotes, with those inside written twice: what no text is by chance."""
    inner = cell[1:-1].replace('""', "")
    return len(cell) > 2 and cell[0] == cell[-1] == '"' and '"' not in inner and len(inner) < len(cell) - 2


def _named(records: Iterator[tuple[int, list[str]]], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows under the names of the first one; blank lines skipped."""
    records = ((line, record) for line, record in records if record)
    line, header = next(records, (1, []))
    if len(set(header)) < len(header) or "" in header:
        raise UserError(
            f"{path} line {line}: the header must name each column once, and reads "
            f"{', '.join(map(repr, header))}. Mend it."
        )
    for line, record in records:
        if len(record) != len(header):
            others = [other for other, later in records if len(later) != len(header)]
            raise UserError(
                f"{path} line {line} has {len(record)} fields, and the header has {len(header)} "
                f"({visible(', '.join(header))}). Mend the row.{also(others)}"
            )
        yield line, dict(zip(header, record, strict=True))
