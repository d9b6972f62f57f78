"""Rows that Python has, put into files: a run reads the same rows again when it is gone on with, or predicts."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tunescope.data.corpus import PARTS
from tunescope.data.row import check_characters
from tunescope.errors import Note, UserError
from tunescope.system import files

if TYPE_CHECKING:
    import numpy as np

Data = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
VALIDATION = "validation"  # what the library datasets calls the part dev
TOLD = (date, time, Decimal, UUID)  # what is put down as a text
SHOWN = 12  # digits of a hash
SINGLE = {  # what tables call numbers of few digits
    **dict.fromkeys(("float16", "halffloat", "Float16"), "float16"),
    **dict.fromkeys(("float32", "float", "Float32"), "float32"),
}
DOUBLE = 8  # bytes of a number of Python's precision
TAKEN = "the path of a file, rows as dicts, or either for each part: {'train': ..., 'test': ...}"


def as_paths(data: Data | Mapping[str, Data], folder: Path) -> str | Path | Mapping[str, str | Path]:
    """The data with the path of a file in place of rows, one set of them or a part's each; paths are as they were.

    Rows are dicts in a list, or in anything that gives them one by one, such as a Dataset; or a DataFrame. They lie in
    `folder` as rows-HASH.jsonl, named by what is in it: the same rows are the same file. "validation" is the part dev.

    Raises:
        UserError: no rows, something else than dicts, a value that no file of rows holds, or what the disk refuses.
    """
    if not isinstance(data, Mapping):
        return _path(data, "compare(data=...)", folder)
    if not set(data) <= {*PARTS, VALIDATION}:
        return cast("Mapping[str, str]", data)  # which is refused by who reads it
    parts = {("dev" if part == VALIDATION and "dev" not in data else part): one for part, one in data.items()}
    return {part: _path(one, f"compare(data={{{part!r}: ...}})", folder) for part, one in parts.items()}


def _path(given: Data, where: str, folder: Path) -> str | Path:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    rows = b"".join(_lines(given, where))
    if not rows:
        raise UserError(f"{where} was given no rows. Give one at least.")
    place = folder / f"rows-{hashlib.sha256(rows).hexdigest()[:SHOWN]}.jsonl"
    with files.errors_told(place):
        files.make_folder(folder)
        if not place.exists() or place.read_bytes() != rows:
            files.put(place, rows)
    return place


def _lines(given: object, where: str) -> Iterator[bytes]:
    _tell_names(given)
    rows = _rows(given, where)
    single = _single(given)
    if not isinstance(rows, Iterable):
        raise UserError(f"{where} takes {TAKEN}; it was given: {type(given).__name__}.")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise UserError(f"{where} takes {TAKEN}; it was given: {type(given).__name__} of {type(row).__name__}.")
        row = {name: _written(value, single[name]) if name in single else value for name, value in row.items()}
        try:
            check_characters(row, f"{where}, row {number}")
            yield (json.dumps(_told(row), ensure_ascii=False, default=_plain) + "\n").encode()
        except UserError:
            raise
        except (TypeError, ValueError, RecursionError) as problem:
            raise UserError(f"{where}, row {number}: {problem}. Make it a text or a number, or leave it out.") from None


def _rows(given: object, where: str) -> object:
    """What gives dicts one by one: of a table of pandas, polars or pyarrow, of a Dataset in any form, or what it is."""
    match given:
        case object(iter_rows=each):  # of polars
            return each(named=True)
        case object(to_pylist=each):  # of pyarrow
            return each()
        case object(with_format=plainly):  # a Dataset
            return plainly(None)
        case object(columns=columns, to_dict=records):
            if twice := [name for name, count in Counter(map(str, columns)).items() if count > 1]:
                raise UserError(f"{where}: more than one column has the name {twice[0]!r}. Rename all but one.")
            return records("records")
    return given


def _single(given: object) -> dict[str, np.dtype[Any]]:
    """Columns of a table or Dataset that hold numbers of few digits, which it gives as doubles, and their kind."""
    import numpy as np

    match given:
        case object(features=Mapping() as features):  # a Dataset
            kinds = {name: getattr(feature, "dtype", None) for name, feature in features.items()}
        case object(schema=object(names=names, types=types)):  # of pyarrow
            kinds = dict(zip(names, types, strict=True))
        case object(schema=Mapping() as schema):  # of polars
            kinds = dict(schema)
        case object(columns=columns, dtypes=dtypes):  # of pandas
            kinds = dict(zip(columns, dtypes, strict=True))
        case _:
            return {}
    short = {name: SINGLE.get(str(kind)) for name, kind in kinds.items()}
    return {name: np.dtype(kind) for name, kind in short.items() if kind is not None}


def _written(value: object, kind: np.dtype[Any]) -> object:
    """A number as one of that kind is written."""
    return float(str(kind.type(value))) if isinstance(value, float) else value


def _told(value: object) -> object:
    """The value with NaN, which stands for what is not there, as None. Raises ValueError for an infinite number."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isinf(value):
            raise ValueError(f"{value} is no number of JSON")
        return None
    if isinstance(value, Mapping):
        return {key: _told(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_told(one) for one in value]
    return value


def _plain(value: object) -> object:
    """Numbers and arrays of numpy as Python's own, those of few digits as they are written; dates and such as texts."""
    kind, size = (getattr(getattr(value, "dtype", None), name, None) for name in ("kind", "itemsize"))
    if kind == "M" or (kind == "f" and size is not None and size < DOUBLE):
        written = value.astype(str).tolist()  # type: ignore[attr-defined]
        return _told(_each(written, float if kind == "f" else lambda text: None if text == "NaT" else text))
    if hasattr(value, "tolist"):
        return _told(value.tolist())
    if isinstance(value, TOLD):
        return None if value != value else str(value)
    raise TypeError(f"no file of rows holds a value of the kind {type(value).__name__}")


def _each(found: object, read: Callable[[str], object]) -> object:
    return [_each(one, read) for one in found] if isinstance(found, list) else read(str(found))


def _tell_names(given: object) -> None:
    """A note of the names that the library datasets has for the numbers of a label."""
    features = getattr(given, "features", None)
    for column, feature in features.items() if isinstance(features, Mapping) else ():
        if names := getattr(feature, "names", None):
            words = {str(number): name for number, name in enumerate(names)}
            warnings.warn(Note(f"{column!r} holds numbers for names. To ask for these: words={words}"), stacklevel=2)
