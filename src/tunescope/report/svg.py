"""The few SVG parts that the charts are made of. Numbers are rounded, so equal data gives equal bytes.

There are no style attributes: the page's security policy forbids them. Colours are classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

GROUPS = ("none", "text", "context", "delta", "both", "head", "full")


@dataclass(frozen=True)
class Axis:
    """Data [low, high] -> pixels [start, end]; values outside are held at the edge."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self, n: int = 5) -> list[float]:
        """Round values inside [low, high]: powers of ten on a log axis, else steps of 1, 2 or 5."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            stride = max(1, math.ceil((last - first + 1) / n))
            return [10.0**power for power in range(first, last + 1, stride)]
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span / n))
        step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= n)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """One element; `class_` is class, `data_arm` is data-arm, None is left out, floats get one decimal."""
    parts = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _number(value))
        for key, value in attributes.items()
        if value is not None
    ]
    head = Markup("<{}{}").format(Markup(name), Markup("").join(parts))
    if not children:
        return head + Markup("/>")
    return head + Markup(">") + Markup("").join(escape(c) for c in children) + Markup("</{}>").format(name)


def figure(size: tuple[float, float], title: str, *children: str, class_: str = "chart") -> Markup:
    """An <svg> that says in words what it shows."""
    box = f"0 0 {size[0]:.0f} {size[1]:.0f}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=title, class_=class_)


def line(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    path = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return tag("path", d=path, class_=class_)


def label(x: float, y: float, text: str, class_: str = "", anchor: str | None = None) -> Markup:
    return tag("text", text, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def dot(x: float, y: float, group: str, note: str, radius: float = 3) -> Markup:
    """One seed or trial."""
    return tag("circle", tag("title", note), cx=x, cy=y, r=radius, class_=f"dot {_class(group)}")


def mark(x: float, y: float, group: str, r: float = 6) -> Markup:
    """The mean of an arm: one shape a group, so that the charts can be read without colour."""
    class_ = f"mark {_class(group)}"
    if group in ("context", "none"):
        return tag("circle", cx=x, cy=y, r=r, class_=class_)
    corners = {
        "delta": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "both": [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
        "text": [(0, -1.1), (1.1, 0.8), (-1.1, 0.8)],
        "head": [(0, 1.1), (1.1, -0.8), (-1.1, -0.8)],
    }.get(group, [(math.sin(i * math.pi / 3) * 1.15, -math.cos(i * math.pi / 3) * 1.15) for i in range(6)])
    points = " ".join(f"{_number(x + r * dx)},{_number(y + r * dy)}" for dx, dy in corners)
    return tag("polygon", points=points, class_=class_)


def cross(x: float, y: float, group: str, note: str, r: float = 4) -> Markup:
    """Something that did not finish."""
    path = f"M{_number(x - r)} {_number(y - r)}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}"
    return tag("path", tag("title", note), d=path, class_=f"cross {_class(group)}")


def y_axis(axis: Axis, left: float, right: float, shown: Sequence[tuple[float, str]]) -> Markup:
    """Horizontal rules with their values to the left."""
    parts = []
    for value, text in shown:
        y = axis(value)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="rule"))
        parts.append(label(left - 8, y + 4, text, "tick", "end"))
    return Markup("").join(parts)


def x_axis(axis: Axis, bottom: float, shown: Sequence[tuple[float, str]]) -> Markup:
    return Markup("").join(label(axis(value), bottom + 18, text, "tick", "middle") for value, text in shown)


def _class(group: str) -> str:
    return f"g-{group if group in GROUPS else 'none'}"


def _number(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
