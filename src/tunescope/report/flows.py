"""What goes from somewhere to somewhere, drawn: curves over layers, and arcs between the parts of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from tunescope.report import svg, text
from tunescope.report.drawing import CHARACTER, label, number, own_size
from tunescope.report.finding import Arcs, Curves, Line

STEP, HIGHEST = 34.0, 170.0  # between the parts of a text; of an arc
FAINTEST = 0.01  # of the strongest: weaker arcs are not drawn


def curves(picture: Curves) -> Markup:
    """A line each, with the range of the runs behind it and its name at its end."""
    left, top, wide, tall = 54.0, 26.0, max(260.0, min(40.0 * len(picture.x), 560.0)), 200.0
    x = svg.Axis(0, max(1, len(picture.x) - 1), left, left + wide)
    y = svg.Axis(picture.low, picture.high, top + tall, top)
    parts = [_gridline(value, left, left + wide, y(value)) for value in y.ticks()]
    each = max(1, len(picture.x) // 12)
    for index in range(0, len(picture.x), each):
        parts.append(svg.label(x(index), top + tall + 18, picture.x[index], "tick", "middle"))
    parts.append(svg.label(left + wide / 2, top + tall + 38, picture.x_axis, "tick on", "middle"))
    parts.append(svg.label(left, 10, picture.y_axis, "tick", "start"))
    ends = _spread_out([y(_last(one.values)) for one in picture.lines], 15.0)
    for one, end in zip(picture.lines, ends, strict=True):
        parts += _line(one, picture.x, x, y)
        parts.append(svg.label(left + wide + 8, end + 4, text.short(one.name, 28), f"tick l-{one.style}", "start"))
    told = "; ".join(
        f"{one.name}: from {number(one.values[0])} to {number(_last(one.values))}" for one in picture.lines
    )
    width = left + wide + 14 + CHARACTER * max((min(28, len(one.name)) for one in picture.lines), default=0)
    return own_size((width, top + tall + 46), f"{picture.title}. {told}.", parts)


def _line(one: Line, names: Sequence[str], x: svg.Axis, y: svg.Axis) -> list[Markup]:
    known = [index for index, value in enumerate(one.values) if math.isfinite(value)]
    parts = []
    if one.low and len(known) > 1:
        there = [f"{x(i):.1f},{y(one.low[i]):.1f}" for i in known]
        back = [f"{x(i):.1f},{y(one.high[i]):.1f}" for i in reversed(known)]
        parts.append(svg.tag("polygon", points=" ".join(there + back), class_=f"range r-{one.style}"))
    points = " ".join(f"{x(i):.1f},{y(one.values[i]):.1f}" for i in known)
    parts.append(svg.tag("polyline", points=points, class_=f"curve c-{one.style}"))
    for i in known:
        note = svg.tag("title", f"{text.clean(one.name)}, {text.clean(names[i])}: {number(one.values[i])}")
        parts.append(svg.tag("circle", note, cx=x(i), cy=y(one.values[i]), r=2.5, class_=f"dot d-{one.style}"))
    return parts


def _gridline(value: float, left: float, right: float, y: float) -> Markup:
    rule = svg.tag("line", x1=left, x2=right, y1=y, y2=y, class_="rule")
    return rule + svg.label(left - 8, y + 4, f"{value:g}", "tick", "end")


def _last(values: Sequence[float]) -> float:
    return next((value for value in reversed(values) if math.isfinite(value)), 0.0)


def _spread_out(heights: Sequence[float], apart: float) -> list[float]:
    """The heights moved so that no two labels stand on one another."""
    moved = list(heights)
    order = sorted(range(len(moved)), key=moved.__getitem__)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + apart)
    return moved


def arcs(picture: Arcs) -> Markup:
    """The parts in a row; an arc's width is its strength.

    Arcs into a marked part have the context's colour, those out of one the delta's, the others are grey.
    """
    left, most = 30.0, max((strength for *_, strength in picture.arcs), default=0.0)
    base = min(max((abs(b - a) for a, b, _ in picture.arcs), default=1) * STEP / 2, HIGHEST) + 16
    shown = [arc for arc in sorted(picture.arcs, key=lambda arc: arc[2]) if arc[2] > FAINTEST * most]
    parts = [_arc(picture, arc, left, base, most) for arc in shown]
    names = [label(name, 24) for name in picture.parts]
    for index, name in enumerate(names):
        x, y = left + index * STEP, base + 14
        kind = "tick on" if index in picture.marked else "tick"
        parts.append(svg.tag("text", name, x=x, y=y, class_=kind, transform=f"rotate(55 {x:.1f} {y:.1f})"))
    deep = 30 + 6.0 * max(map(len, names), default=0)
    strongest = sorted(picture.arcs, key=lambda arc: -arc[2])[:3]
    told = "; ".join(f"{picture.parts[a]} to {picture.parts[b]} {number(s)}" for a, b, s in strongest)
    size = (left + STEP * len(picture.parts) + 0.6 * deep + 30, base + deep)
    return own_size(size, f"{picture.title}. Strongest: {told}.", parts)


def _arc(picture: Arcs, arc: tuple[int, int, float], left: float, base: float, most: float) -> Markup:
    start, to, strength = arc
    a, b = left + start * STEP, left + to * STEP
    own = "context" if to in picture.marked else "delta" if start in picture.marked else "text"
    note = f"{picture.parts[start]} to {picture.parts[to]}: {number(strength)}"
    height = min(abs(b - a) / 2, HIGHEST)
    path = f"M {a:.1f} {base:.1f} A {abs(b - a) / 2:.1f} {height:.1f} 0 0 {int(b > a)} {b:.1f} {base:.1f}"
    width = f"{0.5 + 7 * strength / most:.2f}"
    title = svg.tag("title", str(text.clean(note)))
    return svg.tag("path", title, d=path, class_=f"arc a-{own}", stroke_width=width)
