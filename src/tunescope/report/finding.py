"""What a probe found, as plain data: numbers for JSON, a table for the terminal, pictures for the report to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Numbers = list[list[float]]
Cell = str | float


@dataclass(frozen=True)
class HeatMap:
    """Values in a grid, rows by columns, each written in its cell; NaN where there is none.

    low, high: the values of the faintest and of the strongest shade.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Numbers
    low: float = 0.0
    high: float = 1.0
    row_axis: str = ""
    column_axis: str = ""


@dataclass(frozen=True)
class AttentionMap:
    """One head's attention, queries by keys, the first `n_context` keys a context; `marked` is a query's row."""

    title: str
    queries: Sequence[str]
    keys: Sequence[str]
    values: Numbers
    n_context: int = 0
    marked: int | None = None


@dataclass(frozen=True)
class Pair:
    """Two maps of the same queries, side by side."""

    title: str
    before: AttentionMap
    after: AttentionMap


@dataclass(frozen=True)
class Line:
    """A curve: a value for every x, and the least and the most where there were several runs.

    style: "context", "delta" or "text", which colour it has.
    """

    name: str
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: str = "text"


@dataclass(frozen=True)
class Curves:
    """Curves over the same x, such as layers; the y axis goes from `low` to `high`."""

    title: str
    x_axis: str
    y_axis: str
    x: Sequence[str]
    lines: Sequence[Line]
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Arcs:
    """Parts of a text in a row, and what flows from one to another: (from, to, strength), strengths from 0.

    marked: the parts to set off from the others.
    """

    title: str
    parts: Sequence[str]
    arcs: Sequence[tuple[int, int, float]]
    marked: Sequence[int] = ()


Picture = HeatMap | AttentionMap | Pair | Curves | Arcs


@dataclass(frozen=True)
class Finding:
    """heading: what was looked at; says: what the numbers are; not_said: what they do not show."""

    heading: str
    says: str
    not_said: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    pictures: Sequence[Picture] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
