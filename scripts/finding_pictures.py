"""The pictures of docs/findings/, each drawn from one results file by the parts that the reports are drawn of.

dots      a row a line of a table: ours filled, with its interval, the paper's hollow; of the starts a dot a seed
grid      a whole table as a heat map, the paper's below
training  development scores of the runs against steps, the mean over seeds with the range behind it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from markupsafe import Markup

from scripts.numbers import Number, numbers, read
from tunescope.report import svg, text
from tunescope.report.finding import HeatMap
from tunescope.report.findings_page import standalone
from tunescope.report.pictures import draw

WIDTH, RIGHT, TOP, STEP = 360.0, 150.0, 34.0, 24.0
CHARACTER, LONGEST = 6.6, 48  # the width of one, and the longest label in characters
COLOURS = {
    "none": "#6b6b6b", "text": "#007a5a", "context": "#0068a8", "delta": "#bc4b00", "both": "#a03a7c", "full": "#1c1b19"
}  # fmt: skip
STYLE = Markup(
    "".join(
        f".mark.g-{group}{{fill:{colour}}}.hollow.g-{group}{{fill:#fdfcfa;stroke:{colour};stroke-width:1.5}}"
        f".whisker.g-{group}{{stroke:{colour};stroke-width:2}}.band.g-{group}{{fill:{colour};fill-opacity:.14}}"
        f".grid .l-{group}{{fill:{colour}}}"
        for group, colour in COLOURS.items()
    )
)


def figure(size: tuple[float, float], told: str, parts: Sequence[Markup]) -> str:
    """The <svg>, as wide as it is drawn, which says in words what it shows."""
    box, (width, height) = f"0 0 {size[0]:.0f} {size[1]:.0f}", map(round, size)
    drawn = svg.tag(
        "svg", svg.tag("style", STYLE), *parts,
        viewBox=box, width=width, height=height, role="img", aria_label=told, class_="grid",
    )  # fmt: skip
    return standalone(drawn)


def dots(file: str, column: str) -> str:
    """A column of the file, a line a row. Raises KeyError where no row has such a column."""
    rows = {row: cells[column] for row, cells in numbers(file).items() if column in cells}
    if not rows:
        raise KeyError(f"results/{file}.json has no column {column!r}")
    groups = {arm["name"]: arm["group"] for arm in read(file).get("arms", ())}
    low, high = _range(rows.values())
    left = 24 + CHARACTER * min(LONGEST, max(14, *map(len, rows), 14))
    x, bottom = svg.Axis(low, high, left, left + WIDTH), TOP + STEP * len(rows)
    parts = [svg.label(left, TOP - 16, _title(file, column), "side", "start")]
    for tick in x.ticks():
        parts.append(svg.tag("line", x1=x(tick), x2=x(tick), y1=TOP - 4, y2=bottom, class_="rule"))
        parts.append(svg.label(x(tick), bottom + 16, f"{tick:g}", "tick", "middle"))
    for index, (row, found) in enumerate(rows.items()):
        parts += _line(row, groups.get(row) or kind(row), found, x, TOP + STEP * (index + 0.5))
    if any(one.interval for one in rows.values()):
        key = "filled: here, with its 95 % interval"
    else:
        key = (
            "the mean, and each seed" if any(len(one.values) > 1 for one in rows.values()) else "filled: here, one seed"
        )
    if any(published(one) is not None for one in rows.values()):
        key += "; hollow: published"
    parts.append(svg.label(left, bottom + 36, key, "tick", "start"))
    told = "; ".join(f"{row} {found.shown}" for row, found in rows.items())
    size = (left + WIDTH + RIGHT, bottom + 46)
    return figure(size, f"{_title(file, column)}: {told}", parts)


def _line(row: str, group: str, found: Number, x: svg.Axis, y: float) -> Iterator[Markup]:
    yield svg.label(x.start - 12, y + 4, text.middle(row, LONGEST), "tick", "end")
    if found.interval:
        low, high = map(x, found.interval)
        yield svg.tag("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker g-{group}")
    elif len(found.values) > 1:
        for value in found.values:
            yield svg.tag("circle", cx=x(value), cy=y, r=2.5, class_=f"mark g-{group}")
    theirs = published(found)
    if theirs is not None:
        note = svg.tag("title", f"published {found.paper}")
        yield svg.tag("circle", note, cx=x(theirs), cy=y, r=5, class_=f"hollow g-{group}")
    yield svg.mark(x(found.mean), y, group, 5)
    yield svg.label(x.end + 12, y + 4, found.shown, "tick", "start")


def kind(row: str) -> str:
    """The kind of method that a line is of, by its name: which colour and which mark it has."""
    said = row.lower()
    context = re.search(r"prefix|\bprompt\b|soft|infix|virtual", said)
    delta = re.search("lora|adapter|bitfit", said)
    if context and delta and "without" not in said and "multi-head" not in said:
        return "both"
    if context or delta:
        return "context" if context else "delta"
    return "full" if "full" in said else "text" if said.startswith("demos") else "none"


def published(found: Number) -> float | None:
    """The paper's number, where it is one: 0.95 of .95±.02, 0.763 of `24,426 of 32,000: .763`."""
    number = re.fullmatch(r"(?:.*: )?(\d*\.?\d+)(?:±.*)?", found.paper)
    return float(number[1]) if number else None


def _range(found: Iterable[Number]) -> tuple[float, float]:
    """What the axis holds: from zero, unless all lies far from it."""
    shown: list[float] = []
    for one in found:
        theirs = published(one)
        shown += [one.mean, *(one.interval or ()), *one.values, *([] if theirs is None else [theirs])]
    low, high = min(shown), max(shown)
    span = (high - low) or 1.0
    return (low - 0.08 * span if low > high / 3 else min(low, 0.0)), high + 0.02 * span


def _title(file: str, column: str) -> str:
    """The metric as it is read, and of which corpus; the columns of the starts are corpora, scored by accuracy."""
    if file == "starts":
        return f"accuracy, {column}"
    corpus = re.search(r"--data (\w+):", read(file)["command"])
    return {"bleu": "BLEU"}.get(column, column) + (f", {corpus[1]}" if corpus else "")


def grid(file: str) -> str:
    """The whole table shaded, and the paper's numbers below where they are numbers."""
    result, found = read(file), numbers(file)
    columns = [one for one in result["table"]["columns"] if any(one in cells for cells in found.values())]
    rows = [row.removeprefix("prefix ") for row in found]
    ours = [[cells[one].mean if one in cells else float("nan") for one in columns] for cells in found.values()]
    theirs = [[_theirs(cells.get(one)) for one in columns] for cells in found.values()]
    maps = [draw(HeatMap(name, rows, columns, values)) for name, values in (("here", ours), ("paper", theirs))]
    sizes = [[float(side) for side in re.findall(r'viewBox="0 0 (\S+) (\S+)"', one)[0]] for one in maps]
    width, height = sizes[0]
    parts: list[Markup] = []
    for index, (name, one) in enumerate(zip(("Here", "Published"), maps, strict=True)):
        top = 22 + index * (height + 34)
        parts.append(svg.label(4, top - 6, name, "side", "start"))
        placed = re.sub(r'width="\d+" height="\d+"', f'y="{top}" width="{width}" height="{height}"', str(one), count=1)
        parts.append(Markup(placed))
    told = f"{result['title']}. Here: {_diagonal(found)}"
    return figure((width, 2 * (height + 34)), told, parts)


def _theirs(found: Number | None) -> float:
    theirs = None if found is None else published(found)
    return float("nan") if theirs is None else theirs


def _diagonal(found: Mapping[str, Mapping[str, Number]]) -> str:
    """Of each row its highest cell."""
    most = {row: max(cells, key=lambda one: cells[one].mean) for row, cells in found.items()}
    return "; ".join(f"{row}, {column} {found[row][column].shown}" for row, column in most.items())


def training(file: str) -> str:
    """Development scores against steps, a line an arm that was trained; behind it from the least to the most seed."""
    result = read(file)
    runs: dict[str, list[dict[int, float]]] = {}
    for unit in result["units"]:
        if unit["outcome"].get("curve"):
            points = {point["step"]: point["dev"] for point in unit["outcome"]["curve"]}
            runs.setdefault(unit["unit"]["arm"], []).append(points)
    names = [row["label"] for row in result["table"]["rows"] if not row["label"].startswith("pretrained")]
    last = max(step for seeds in runs.values() for points in seeds for step in points)
    x, y = svg.Axis(0, last, 48, 48 + WIDTH), svg.Axis(0, 1, 250, 34)
    parts = [svg.label(48, 18, "answer tokens right, on development rows", "side", "start")]
    parts.append(svg.y_axis(y, x.start, x.end, [(tick, f"{tick:g}") for tick in y.ticks()]))
    parts.append(svg.x_axis(x, 250, [(tick, f"{tick:,.0f}") for tick in x.ticks(5)]))
    parts.append(svg.label(48 + WIDTH / 2, 290, "steps", "tick", "middle"))
    curves = {name: _curve(seeds) for name, seeds in zip(names, runs.values(), strict=True)}
    ends = _apart([y(points[-1][1]) for points in curves.values()], 16)
    for (name, points), end in zip(curves.items(), ends, strict=True):
        group = kind(name)
        band = [(x(step), y(low)) for step, _, low, _ in points] + [(x(s), y(high)) for s, *_, high in points[::-1]]
        parts.append(svg.tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in band), class_=f"band g-{group}"))
        parts.append(svg.line([(x(step), y(mean)) for step, mean, *_ in points], f"whisker curve g-{group}"))
        parts.append(svg.mark(x(points[-1][0]), y(points[-1][1]), group, 4))
        parts.append(
            svg.label(x.end + 14, end + 4, text.middle(name.partition(":")[0], LONGEST), f"tick l-{group}", "start")
        )
    told = "; ".join(f"{name} {points[-1][1]:.3f} after {points[-1][0]:,}" for name, points in curves.items())
    size = (48 + WIDTH + 24 + CHARACTER * max(map(len, (name.partition(":")[0] for name in names))), 300)
    return figure(size, f"{result['title']}. {told}.", parts)


def _curve(seeds: list[dict[int, float]]) -> list[tuple[int, float, float, float]]:
    """Step, mean, least and most, at each step that all seeds have."""
    steps = sorted(set(seeds[0]).intersection(*seeds))
    return [
        (step, fmean(p[step] for p in seeds), min(p[step] for p in seeds), max(p[step] for p in seeds))
        for step in steps
    ]


def _apart(heights: list[float], gap: float) -> list[float]:
    """The heights moved down where they are nearer than the gap."""
    order, moved = sorted(range(len(heights)), key=heights.__getitem__), list(heights)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved
