"""A score against a size, a line a method, each with its interval: as a drawing of its own."""

from collections.abc import Mapping
from statistics import fmean

from markupsafe import Markup

from tunescope.report import svg
from tunescope.report.cells import Cell

WIDTH, HEIGHT, LEFT, TOP, KEY = 420.0, 240.0, 56.0, 16.0, 200.0
COLOURS = ("#0068a8", "#b3261e", "#2e7d32", "#8a5a00", "#6a1b9a", "#37474f")


Bounds = tuple[float, float]


def drawn(lines: Mapping[str, Mapping[int, tuple[float, ...]]], names: tuple[str, str], bounds: Bounds) -> Markup:
    """The <svg>. lines: method -> size -> values, one a seed; names: of the size, on a log axis, and of the score.

    bounds: what a score can be.
    """
    sizes = sorted({size for values in lines.values() for size in values})
    highest = max((_top(values, bounds) for one in lines.values() for values in one.values() if values), default=1.0)
    x = svg.Axis(sizes[0] / 1.1, sizes[-1] * 1.1, LEFT, LEFT + WIDTH, log=True)
    y = svg.Axis(0.0, min(highest * 1.1 or 1.0, bounds[1]), TOP + HEIGHT, TOP)
    parts: list[Markup] = [svg.y_axis(y, LEFT, LEFT + WIDTH, [(tick, f"{tick:g}") for tick in y.ticks()])]
    parts.append(svg.x_axis(x, TOP + HEIGHT, [(size, f"{size:,}") for size in sizes]))
    parts.append(svg.label(LEFT + WIDTH / 2, TOP + HEIGHT + 40, names[0], "side", "middle"))
    parts.append(svg.label(LEFT, TOP - 4, names[1], "side", "start"))
    for number, (label, values) in enumerate(lines.items()):
        parts += _line({size: values.get(size, ()) for size in sizes}, x, y, COLOURS[number % len(COLOURS)], bounds)
        down = TOP + 20 + 22 * number
        end = LEFT + WIDTH + 20
        parts.append(_stroke((end, down), (end + 24, down), COLOURS[number % len(COLOURS)], 2))
        parts.append(svg.label(end + 32, down + 4, label, "tick", "start"))
    size = (LEFT + WIDTH + KEY, TOP + HEIGHT + 52)
    return svg.figure(size, _description(lines, names), *parts, class_="grid")


def _top(values: tuple[float, ...], bounds: Bounds) -> float:
    """The highest that is drawn of some values."""
    interval = Cell(values, bounds=bounds).interval
    return max(*values, *(interval or ()), 0.0)


def _line(
    values: Mapping[int, tuple[float, ...]], x: svg.Axis, y: svg.Axis, colour: str, bounds: Bounds
) -> list[Markup]:
    """A dot for each mean with its interval, joined to the next; where a size has no score, the line is broken."""
    parts, before = [], None
    for size in sorted(values):
        if not values[size]:
            before = None
            continue
        here = x(size), y(fmean(values[size]))
        if before is not None:
            parts.append(_stroke(before, here, colour, 2))
        interval = Cell(values[size], bounds=bounds).interval
        if interval is not None:
            parts.append(_stroke((here[0], y(interval[0])), (here[0], y(interval[1])), colour, 1))
        note = f"{size:,}: {fmean(values[size]):.2f}"
        parts.append(svg.tag("circle", svg.tag("title", note), cx=here[0], cy=here[1], r=4, fill=colour))
        before = here
    return parts


def _stroke(start: tuple[float, float], end: tuple[float, float], colour: str, width: int) -> Markup:
    return svg.tag("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], stroke=colour, stroke_width=width)


def _description(lines: Mapping[str, Mapping[int, tuple[float, ...]]], names: tuple[str, str]) -> str:
    each = (
        f"{label}: " + ", ".join(f"{size:,} {fmean(found):.2f}" for size, found in sorted(values.items()) if found)
        for label, values in lines.items()
    )
    return f"{names[1]} against {names[0]}. " + "; ".join(each)
