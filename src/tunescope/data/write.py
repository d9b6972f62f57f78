"""Rows to a new JSONL or CSV file, one by one: what is there when the writing ends early is whole rows."""

from __future__ import annotations

import csv
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from tunescope.errors import UserError
from tunescope.system import files

Put = Callable[[Mapping[str, Any]], None]


def check_new(path: Path) -> None:
    """UserError where the name tells no format, something is there already, or its folder is not."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"{path}: the name tells the format. Allowed: {', '.join(KINDS)}")
    if os.path.lexists(path):
        raise UserError(f"{path} is there already, and is left as it is. Give another name.")
    if not os.path.isdir(path.parent):
        raise UserError(f"{path}: {path.parent} is no folder. Make it, or give a file in another.")


@contextmanager
def new_file(path: Path, names: Sequence[str]) -> Iterator[Put]:
    """What adds a row to the file that is made there.

    JSONL has each row as it is. CSV has a header of `names`, an empty field for what a row lacks and for null, and what
    is no text as JSON writes it.

    Raises UserError as `check_new`, where the disk refuses it, and where the file was removed meanwhile.
    """
    check_new(path)
    kind = KINDS[path.suffix.lower()]
    try:
        with open(path, "x", encoding="utf-8", newline="", buffering=1) as file, _whole_rows(file) as end:
            put = kind(file, names)

            def counted(row: Mapping[str, Any]) -> None:
                put(row)
                end.append(os.fstat(file.fileno()).st_size)

            yield counted
    except BrokenPipeError:  # of what is printed beside it: the file took all
        raise
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}.") from problem
    if not path.exists():
        raise UserError(f"{path} was removed while it was written: nothing of it is left.")


@contextmanager
def _whole_rows(file: TextIO) -> Iterator[deque[int]]:
    """What takes how long the file is behind each whole row; where the disk refuses one, its half goes."""
    end, raw = deque([0], maxlen=1), os.dup(file.fileno())  # which is open when the file's own is closed
    try:
        yield end
    except OSError:
        with suppress(OSError):
            file.close()
        os.ftruncate(raw, end[0])
        raise
    finally:
        os.close(raw)


def _jsonl(file: TextIO, names: Sequence[str]) -> Put:
    def put(row: Mapping[str, Any]) -> None:
        file.write(_json(row) + "\n")

    return put


def _csv(file: TextIO, names: Sequence[str]) -> Put:
    table = csv.writer(file)
    table.writerow(names)

    def put(row: Mapping[str, Any]) -> None:
        table.writerow([_cell(row.get(name)) for name in names])

    return put


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else _json(value)


def _json(value: object) -> str:
    """As JSON: null for what is no number, and bytes and the like, as Parquet may have them, as Python shows them."""
    return json.dumps(files.finite(value), ensure_ascii=False, default=str)


KINDS: dict[str, Callable[[TextIO, Sequence[str]], Put]] = {".jsonl": _jsonl, ".ndjson": _jsonl, ".csv": _csv}
