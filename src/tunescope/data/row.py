"""One row of data: where it stands, its fields as text, and what no field may hold."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, TypeVar, cast

from tunescope.data.conversations import FIELDS, is_conversation, why_not
from tunescope.errors import UserError

LONGEST = 1_000_000  # characters of a field: a book has fewer
SHOWN = 4  # lines that a message names behind the first
Read = TypeVar("Read")
HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs


class MissingField(UserError):  # noqa: N818
    """A row has no field of that name. close: one that it has, of nearly that name; "" where it has none."""

    def __init__(self, message: str, field: str, close: str = "") -> None:
        super().__init__(message)
        self.field, self.close = field, close


class Row(dict[str, Any]):
    """One row as a dict that knows its file's name and its line there, counted from 1."""

    __slots__ = ("file", "line")

    def __init__(self, values: Mapping[str, Any], file: str, line: int) -> None:
        super().__init__(values)
        self.file, self.line = file, line


def place(row: Mapping[str, Any], index: int) -> str:
    """Where a row stands, for messages; ``index`` (from 0) serves rows that were not read from a file."""
    return f"{row.file} line {row.line}" if isinstance(row, Row) else f"row {index + 1}"


def line_of(row: Mapping[str, Any], index: int) -> int:
    """The row's line in its file, or its number (from 1) in the list where it has none."""
    return row.line if isinstance(row, Row) else index + 1


def or_filled(row: Mapping[str, Any], field: str, given: object) -> Mapping[str, Any]:
    """The row itself; where the field is missing, null or blank, a copy that has `given` there."""
    return row if str("" if row.get(field) is None else row[field]).strip() else put(row, field, given)


def put(row: Mapping[str, Any], field: str, given: object) -> Mapping[str, Any]:
    """A copy of the row that has `given` in the field."""
    made = cast("dict[str, Any]", copy(row))
    made[field] = given
    return made


def value(row: Mapping[str, Any], field: str, index: int) -> str:
    """A field as text: strings as they are, numbers and booleans as JSON writes them.

    Raises:
        UserError: the field is missing, null, a list or an object.
    """
    if field not in row and field in FIELDS and is_conversation(row) and (reason := why_not(row)):
        raise UserError(f"{place(row, index)}: {reason}")
    if field not in row:
        close = difflib.get_close_matches(field, map(str, row), n=1)
        raise MissingField(
            f"{place(row, index)} has no field '{field}'."
            + (f" Did you mean '{close[0]}'?" if close else "")
            + f" It has: {', '.join(map(str, row))}."
            + _separated(row),
            field,
            *close,
        )
    found = row[field]
    if isinstance(found, str):
        return found
    if isinstance(found, bool | int) or (isinstance(found, float) and math.isfinite(found)):
        return json.dumps(found)
    what = "null" if found is None else f"a {type(found).__name__}" if not isinstance(found, float) else str(found)
    raise UserError(
        f"{place(row, index)}: '{field}' is {what}, where text or a number is needed. "
        f"{'Fill it in or delete the row' if found is None else 'Make it text, or name another field'}."
    )


def every_row(rows: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any], int], Read]) -> list[Read]:
    """What `read` makes of each row and its index.

    Raises:
        UserError: of the first row that cannot be read, with the lines of others in its file that have the same fault.
    """
    try:
        return [read(row, index) for index, row in enumerate(rows)]
    except UserError as problem:
        others = _others(rows, read)
        if len(others) < len(rows) - 1 or not isinstance(problem, MissingField):  # a field that no row has is no slip
            problem.args = (f"{problem}{also(others)}",)
        raise


def _others(rows: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any], int], Any]) -> list[int]:
    """Lines of the rows that cannot be read for the reason of the first such row, which is not among them."""
    faults = []
    for index, row in enumerate(rows):
        try:
            read(row, index)
        except UserError as problem:
            told = str(problem).removeprefix(place(row, index))
            faults.append((line_of(row, index), (getattr(row, "file", ""), told)))
    return [line for line, fault in faults[1:] if fault == faults[0][1]]


def also(others: Sequence[int]) -> str:
    """A sentence on the lines that have the same fault as one that is told; "" where there are none."""
    if not others:
        return ""
    more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
    return f" The same holds of line{'s' * (len(others) > 1)} {', '.join(map(str, others[:SHOWN]))}{more}."


def _separated(row: Mapping[str, Any]) -> str:
    """What to do where one field's name reads as several, apart by something else than commas."""
    names = list(map(str, row))
    apart = next((mark for mark in (";", "|", "\t") if len(names) == 1 and mark in names[0]), None)
    return f" Fields of a .csv are separated by commas, and not by {apart!r}: save it so, or as .tsv." if apart else ""


def check_characters(values: Mapping[str, Any], where: str) -> None:
    """NUL and halves of surrogate pairs come through JSON escapes and break tokenizers: refuse them here."""
    for field, found in values.items():
        for text in (str(field), *_texts(found)):
            if HALVES.search(text):
                raise UserError(
                    f"{where}: {field!a} holds half of a surrogate pair (\\ud800 to \\udfff), "
                    "which is no character. Remove it from the row."
                )
            if "\0" in text:
                raise UserError(f"{where}: {field!a} holds a NUL character. Remove it from the row.")


def _texts(found: Any) -> Iterator[str]:
    """All texts in a field's value: of a list or an object, those in it."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, list | Mapping):
        for one in (*found, *found.values()) if isinstance(found, Mapping) else found:
            yield from _texts(one)


def check_lengths(rows: Sequence[Mapping[str, Any]], longest: int | None) -> None:
    """UserError for fields of more than `longest` characters (None: LONGEST), which take minutes to be made tokens."""
    most = longest or LONGEST
    long = [
        (len(text), field, index)
        for index, row in enumerate(rows)
        for field, found in row.items()
        for text in _texts(found)
        if len(text) > most
    ]
    if not long:
        return
    length, field, index = long[0]
    others = f" ({len(long)} such texts in all)" if len(long) > 1 else ""
    raise UserError(
        f"{place(rows[index], index)}: {str(field)[:80]!r} has {length:,} characters, where at most {most:,} are read"
        f"{others}. Shorten the text or leave the row out; or let a comparison read it: --longest-field {max(long)[0]}"
    )
