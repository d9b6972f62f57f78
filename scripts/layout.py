"""Where boxes on floors stand and how the arrows between them run: whole numbers, the same every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT, BETWEEN, APART, MARGIN, LANE = 286, 82, 44, 30, 24, 12
ROUNDS = 40
STRAIGHT = 8  # how much more an arrow is kept straight between two floors that it passes


@dataclass(frozen=True)
class Box:
    name: str
    left: int
    top: int
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Line:
    """An arrow from one box down to another, as the path of an SVG."""

    start: str
    end: str
    path: str


Spot = tuple[str, ...]  # ("data",): a box; ("tasks", "data", 3): where an arrow passes a floor, as text


def laid_out(floors: Mapping[str, int], edges: Mapping[str, set[str]]) -> tuple[int, int, list[Box], list[Line]]:
    """Width, height, the boxes from the top floor down, and the arrows between them."""
    ways = {(start, end): _way(start, end, floors) for start in sorted(edges) for end in sorted(edges[start])}
    rows = _rows(floors, ways.values())
    middle = _middles(rows, ways.values())
    left = min(middle[spot] - _wide(spot) / 2 for row in rows for spot in row) - MARGIN
    right = max(middle[spot] + _wide(spot) / 2 for row in rows for spot in row) + MARGIN
    at = {spot: round(x - left) for spot, x in middle.items()}
    tops = [MARGIN + (len(rows) - 1 - floor) * (HEIGHT + BETWEEN) for floor in range(len(rows))]
    names = sorted(floors, key=lambda name: (-floors[name], at[(name,)]))
    boxes = [Box(name, at[(name,)] - WIDTH // 2, tops[floors[name]]) for name in names]
    lines = [Line(start, end, _path(way, at, tops, floors, list(ways.values()))) for (start, end), way in ways.items()]
    return round(right - left), tops[0] + HEIGHT + MARGIN, boxes, lines


def _way(start: str, end: str, floors: Mapping[str, int]) -> list[Spot]:
    """The spots of an arrow: its box, one on each floor between, the box that it ends at."""
    between = range(floors[start] - 1, floors[end], -1)
    return [(start,), *((start, end, str(floor)) for floor in between), (end,)]


def _rows(floors: Mapping[str, int], ways: Sequence[list[Spot]]) -> list[list[Spot]]:
    rows: list[list[Spot]] = [[] for _ in range(max(floors.values()) + 1)]
    for name in sorted(floors):
        rows[floors[name]].append((name,))
    for way in ways:
        for spot in way[1:-1]:
            rows[int(spot[2])].append(spot)
    return rows


def _wide(spot: Spot) -> int:
    return WIDTH if len(spot) == 1 else LANE


def _middles(rows: Sequence[list[Spot]], ways: Sequence[list[Spot]]) -> dict[Spot, float]:
    """Each spot near the middle of those that it is joined to, none over another; what is joined to none beside."""
    joined: dict[Spot, list[Spot]] = {}
    for way in ways:
        for above, below in pairwise(way):
            times = STRAIGHT if len(above) == len(below) == 3 else 1
            joined.setdefault(above, []).extend([below] * times)
            joined.setdefault(below, []).extend([above] * times)
    held = [[spot for spot in row if spot in joined] for row in rows]
    middle = {spot: float(number) for row in held for number, spot in enumerate(row)}
    for _ in range(ROUNDS):
        for row in [*held, *reversed(held)]:
            middle |= _spread(row, {spot: sum(middle[one] for one in joined[spot]) / len(joined[spot]) for spot in row})
    for row in rows:
        for spot in sorted(set(row) - joined.keys()):
            middle[spot] = max((middle[one] for one in row if one in middle), default=0.0) + WIDTH + 2 * APART
    return middle


def _spread(row: Sequence[Spot], wanted: Mapping[Spot, float]) -> dict[Spot, float]:
    """The spots in the order of where they are wanted, pushed apart, and moved together to where they are wanted."""
    found: dict[Spot, float] = {}
    edge = None
    for spot in sorted(row, key=lambda one: (wanted[one], one)):
        half = _wide(spot) / 2
        found[spot] = wanted[spot] if edge is None else max(wanted[spot], edge + APART + half)
        edge = found[spot] + half
    off = sum(found[spot] - wanted[spot] for spot in row) / max(1, len(row))
    return {spot: x - off for spot, x in found.items()}


def _path(
    way: list[Spot], at: Mapping[Spot, int], tops: Sequence[int], floors: Mapping[str, int], ways: list[list[Spot]]
) -> str:
    """From the foot of the first box, straight past the floors between, to the head of the last."""
    down = [other[1] for other in ways if other[0] == way[0]]
    into = [other[-2] for other in ways if other[-1] == way[-1]]
    x, y = _port(at[way[0]], way[1], down, at), tops[floors[way[0][0]]] + HEIGHT
    path = [f"M{x} {y}"]
    for spot in way[1:]:
        last = spot is way[-1]
        to = _port(at[spot], way[-2], into, at) if last else at[spot]
        top = tops[floors[spot[0]] if last else int(spot[2])]
        half = (top - y) // 2
        path.append(f"C{x} {y + half} {to} {top - half} {to} {top}")
        x, y = to, top
        if not last:
            y = top + HEIGHT
            path.append(f"V{y}")
    return "".join(path)


def _port(middle: int, other: Spot, others: Sequence[Spot], at: Mapping[Spot, int]) -> int:
    """Where on a box's edge an arrow begins or ends: one beside the other, in the order of where they come from."""
    order = sorted(others, key=lambda spot: (at[spot], spot))
    return round(middle + 44 * (order.index(other) - (len(order) - 1) / 2))
