"""What probes found, drawn: a grid of values, one head's attention, two side by side. Plain data in, SVG out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch

from markupsafe import Markup

from tunescope.report import flows, svg, text
from tunescope.report.drawing import CHARACTER, label, number, own_size
from tunescope.report.finding import Arcs, AttentionMap, Curves, HeatMap, Pair, Picture

ROOM = 13  # characters of a label


@singledispatch
def draw(picture: Picture) -> Markup:
    """The picture as an <svg> that says in words what it shows; its colours are the page's."""
    raise TypeError(f"{type(picture).__name__} is no picture.")


@draw.register
def heat_map(picture: HeatMap) -> Markup:
    """A cell a value, shaded from `low` to `high`, with the value in it."""
    rows, columns = ([label(one, 22) for one in names] for names in (picture.rows, picture.columns))
    wide = max(44.0, CHARACTER * max(map(len, columns), default=0) + 10) if len(columns) <= 16 else 30.0
    upright = len(columns) <= 16
    left, top, tall = CHARACTER * max(map(len, rows), default=0) + 14, 24.0 if upright else 66.0, 26.0
    parts = [_column_label(name, left + (i + 0.5) * wide, top - 8, upright) for i, name in enumerate(columns)]
    for i, row in enumerate(picture.values):
        y = top + i * tall
        parts.append(svg.label(left - 8, y + tall / 2 + 4, rows[i], "tick", "end"))
        for j, value in enumerate(row):
            note = f"{picture.rows[i]}, {picture.columns[j]}: {number(value)}"
            parts.append(
                _cell((left + j * wide, y, wide, tall), value, (picture.low, picture.high), note, written=True)
            )
    size = (left + wide * len(columns) + 6, top + tall * len(rows) + 4)
    return own_size(size, f"{picture.title}. {_extremes(picture)}", parts)


@draw.register
def attention_map(picture: AttentionMap) -> Markup:
    """Queries by keys, the context's keys first and in their own colour, the marked query's row framed."""
    size, parts = _map(picture)
    return own_size(size, _description(picture), parts)


@draw.register
def side_by_side(picture: Pair) -> Markup:
    """Both maps on one scale of shades, each under its own title."""
    top = max(_most(picture.before), _most(picture.after))
    (width, height), left = _map(picture.before, top)
    (more, _), right = _map(picture.after, top)
    parts = [
        svg.label(width / 2, 14, picture.before.title, "side", "middle"),
        svg.label(width + 24 + more / 2, 14, picture.after.title, "side", "middle"),
        svg.tag("g", *left, transform="translate(0 20)"),
        svg.tag("g", *right, transform=f"translate({width + 24:.0f} 20)"),
    ]
    said = f"{picture.title}. {_description(picture.before)} {_description(picture.after)}"
    return own_size((width + 24 + more, height + 20), said, parts)


draw.register(Curves, flows.curves)
draw.register(Arcs, flows.arcs)


def _map(picture: AttentionMap, most: float | None = None) -> tuple[tuple[float, float], list[Markup]]:
    most = _most(picture) if most is None else most
    queries, keys = ([label(one, ROOM) for one in names] for names in (picture.queries, picture.keys))
    side = 16.0 if len(keys) > 24 else 20.0
    left, top = (CHARACTER * max(map(len, names), default=0) + 12 for names in (queries, keys))
    gap = 5.0 if picture.n_context else 0.0  # between context and text

    def x(j: int) -> float:
        return left + j * side + (gap if j >= picture.n_context else 0.0)

    parts = [_column_label(name, x(j) + side / 2, top - 6, False) for j, name in enumerate(keys)]
    for i, row in enumerate(picture.values):
        y = top + i * side
        parts.append(
            svg.label(left - 6, y + side / 2 + 4, queries[i], "tick on" if i == picture.marked else "tick", "end")
        )
        for j, value in enumerate(row):
            note = f"{picture.queries[i]} on {picture.keys[j]}: {number(value)}"
            place, own = (x(j), y, side, side), "context" if j < picture.n_context else "text"
            parts.append(_cell(place, value, (0.0, most), note, own=own))
    width = x(len(keys) - 1) + side - left if keys else 0.0
    if picture.marked is not None:
        y = top + picture.marked * side
        parts.append(svg.tag("rect", x=left - 0.5, y=y, width=width + 1, height=side, class_="marked"))
    return (left + width + 4, top + side * len(queries) + 4), parts


def _cell(
    place: tuple[float, float, float, float],
    value: float,
    scale: tuple[float, float],
    note: str,
    *,
    own: str = "context",
    written: bool = False,
) -> Markup:
    x, y, width, height = place
    low, high = scale
    known = math.isfinite(value)
    share = min(1.0, max(0.0, (value - low) / (high - low))) if known and high > low else 0.0
    shade = svg.tag(
        "rect", svg.tag("title", str(text.clean(note))), x=x + 0.5, y=y + 0.5, width=width - 1, height=height - 1,
        fill_opacity=f"{share:.3f}", class_=f"shade s-{own}" if known else "shade s-none",
    )  # fmt: skip
    if not written:
        return shade
    class_ = "value strong" if share > 0.55 else "value"
    return shade + svg.label(x + width / 2, y + height / 2 + 4, number(value), class_, "middle")


def _column_label(name: str, x: float, y: float, upright: bool) -> Markup:
    if upright:
        return svg.label(x, y, name, "tick", "middle")
    return svg.tag("text", name, x=x + 4, y=y, class_="tick", transform=f"rotate(-90 {x + 4:.1f} {y:.1f})")


def _most(picture: AttentionMap) -> float:
    return max((value for row in picture.values for value in row if math.isfinite(value)), default=1.0)


def _extremes(picture: HeatMap) -> str:
    known = [
        (value, picture.rows[i], picture.columns[j])
        for i, row in enumerate(picture.values)
        for j, value in enumerate(row)
        if math.isfinite(value)
    ]
    if not known:
        return "No value is defined."
    (low, *where), (high, *there) = min(known), max(known)
    return f"From {number(low)} ({', '.join(where)}) to {number(high)} ({', '.join(there)})."


def _description(picture: AttentionMap) -> str:
    """The marked query's strongest keys, for those who cannot see the map."""
    if picture.marked is None:
        return f"{picture.title}."
    row = picture.values[picture.marked]
    order: Sequence[int] = sorted(range(len(row)), key=lambda j: -row[j] if math.isfinite(row[j]) else 0.0)[:3]
    strongest = ", ".join(f"{picture.keys[j]} {number(row[j])}" for j in order)
    return f"{picture.title}. {picture.queries[picture.marked]} attends most to: {strongest}."
