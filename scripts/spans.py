"""Numbers within sentences of the pages, and sentences without a number, held against the results files.

    <!-- n FILE | ROW | COLUMN -->13.2 [1.7, 24.7]<!-- / -->     the cell, with its interval
    <!-- n FILE | ROW | COLUMN | mean -->13.2<!-- / -->          without
    <!-- so FILE | ROW | above | ROW | COLUMN -->                what the next sentence says

What `so` can say: `above`, of means; `clear of`, that the lower end of the one interval is above the other's upper;
`not clear of`, that neither is of the other; `not told from`, that besides the interval of their difference, seed by
seed or as a comparison pairs them, has zero within; `ahead of`, that all of that interval is above zero. A star in a
ROW or COLUMN is any characters, and all pairs must be so; several columns are parted by semicolons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import product

from scripts.numbers import FORGETS, Number, compared, number, numbers, paired

SPAN = re.compile(r"<!-- n ([^>]*?) -->(.*?)<!-- / -->", re.DOTALL)
SO = re.compile(r"<!-- so ([^>]*?) -->")


def filled(text: str) -> str:
    """The text with every span's number as its file has it. Raises KeyError where a file has no such cell."""
    return SPAN.sub(lambda found: f"<!-- n {found[1]} -->{_shown(found[1])}<!-- / -->", text)


def _shown(asked: str) -> str:
    file, row, column, *only = (part.strip() for part in asked.split(" | "))
    found = number(file, row, column)
    return found.bare if only == ["mean"] else found.shown


def untrue(text: str) -> list[str]:
    """What a `so` of the text says and its file does not."""
    return [f"{asked}: {told}" for asked in SO.findall(text) for told in _against(asked)]


def _against(asked: str) -> Iterator[str]:
    """Why it is not so. Raises ValueError where nothing is asked: of no rows or columns, or in other words."""
    file, one, relation, other, columns = (part.strip() for part in asked.split(" | "))
    found = numbers(file)
    wanted = [one.strip() for one in columns.split(";")]
    pairs = [
        (left, right, column)
        for left, right in product(_named(found, one), _named(found, other))
        for column in sorted(set(found[left]) & set(found[right]))
        if left != right and any(fnmatchcase(column, one) for one in wanted)
    ]
    unknown = [one for one in wanted if not any(fnmatchcase(column, one) for _, _, column in pairs)]
    if unknown or relation not in RELATIONS:
        raise ValueError(f"so {asked}: no such rows and columns, or {relation!r} is none of {', '.join(RELATIONS)}.")
    for left, right, column in pairs:
        one_is, other_is = found[left][column], found[right][column]
        less = paired(one_is.values, other_is.values) or (None if column == FORGETS else compared(file, left, right))
        if not RELATIONS[relation](one_is, other_is, less and less[1]):
            yield f"{left} {found[left][column].shown}, {right} {found[right][column].shown} ({column})"


def _named(found: dict[str, dict[str, Number]], wanted: str) -> list[str]:
    return [row for row in found if fnmatchcase(row, wanted)]


Less = tuple[float, float] | None  # the interval of a paired difference


def _above(one: Number, other: Number, _: Less) -> bool:
    return one.mean > other.mean


def _clear(one: Number, other: Number, _: Less = None) -> bool:
    """Of two numbers without an interval nothing is clear, and nothing is not; of one without, it is the number."""
    if not (one.interval or other.interval):
        raise ValueError(f"neither {one.shown} nor {other.shown} has an interval; only `above` can be said of them.")
    low, _high = one.interval or (one.mean, one.mean)
    _low, high = other.interval or (other.mean, other.mean)
    return bool(low > high)


def _near(one: Number, other: Number, _: Less = None) -> bool:
    return not _clear(one, other) and not _clear(other, one)


def _untold(one: Number, other: Number, less: Less) -> bool:
    return _near(one, other) and (less is None or less[0] <= 0 <= less[1])


def _ahead(_one: Number, _other: Number, less: Less) -> bool:
    return less is not None and less[0] > 0


RELATIONS = {
    "above": _above, "clear of": _clear, "not clear of": _near, "not told from": _untold, "ahead of": _ahead
}  # fmt: skip
