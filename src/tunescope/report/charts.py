"""The charts of the page: an arm's scores in its table row, score against budget, and an arm's training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tunescope.report import svg, text
from tunescope.report.svg import Axis

Arm = dict[str, Any]
POINTS = 30_000  # in all the learning curves of a page together: about 400 kB


@dataclass(frozen=True)
class Frame:
    """What the charts of one page share: the metric and the ranges of its axes."""

    metric: str
    scale: float
    chance: float | None
    scores: tuple[float, float]
    losses: tuple[float, float]
    steps: float
    per_line: int


def frame(arms: Sequence[Arm], metric: str, scale: float, chance: float | None) -> Frame:
    points = [p for arm in arms for run in arm["runs"] for p in run["curve"]]
    scores = [run["score"] for arm in arms for run in arm["runs"]] + [p.get("dev") for p in points]
    scores += [edge for arm in arms for edge in arm["interval"] or []]
    scores += [trial.get("dev") for arm in arms for trial in arm["trials"]] + [chance]
    lines = sum(len(arm["runs"]) for arm in arms)
    return Frame(
        metric=metric,
        scale=scale,
        chance=chance,
        scores=_range(scores, (0.0, scale)),
        losses=_range((p.get("loss") for p in points), (0.0, 1.0), trim=0.01),
        steps=max((p["step"] for p in points), default=1),
        per_line=min(150, max(8, POINTS // max(1, 2 * lines))),
    )


def strip(arm: Arm, f: Frame) -> Markup:
    """Every seed, the mean and its interval, small enough for a table cell."""
    width, height = 150, 24
    x, y = Axis(*f.scores, 6, width - 6), height / 2
    parts = [svg.tag("line", x1=6, x2=width - 6, y1=y, y2=y, class_="rule")]
    if f.chance is not None:
        parts.append(svg.tag("line", x1=x(f.chance), x2=x(f.chance), y1=3, y2=height - 3, class_="chance"))
    if arm["interval"]:
        low, high = map(x, arm["interval"])
        parts.append(svg.tag("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker g-{arm['group']}"))
    parts += [svg.dot(x(run["score"]), y, arm["group"], _seed_note(run, f), 2.5) for run in arm["runs"]]
    parts.append(svg.mark(x(arm["score"]), y, arm["group"], 4.5))
    return svg.figure((width, height), f"{f.metric} of {arm['name']}: {_told(arm, f)}", *parts, class_="strip")


def budget(arms: Sequence[Arm], f: Frame) -> Markup:
    """Score against stored parameters (log), every seed a dot, arms labelled at the right."""
    width, height, left, right, top = 940.0, 440.0, 58.0, 230.0, 18.0
    bottom, edge = height - 52, width - right
    y = Axis(*f.scores, bottom, top)
    parts = [svg.y_axis(y, left, edge, [(t, text.score(t, f.scale)) for t in y.ticks(6)])]
    parts += _budget_axis(arms, left, edge, bottom)
    if f.chance is not None:
        level = y(f.chance)
        parts.append(svg.tag("line", x1=left, x2=edge, y1=level, y2=level, class_="chance"))
        parts.append(svg.label(edge - 6, level - 6, "chance", "tick", "end"))
    places = _apart([_budget_x(arms, left, edge)(arm["stored"]) for arm in arms], 17, left + 14, edge - 14)
    heights = _apart([y(arm["score"]) for arm in arms], 19, top + 6, bottom)
    for arm, x, label_y in zip(arms, places, heights, strict=True):
        parts.append(_budget_arm(arm, f, y, (x, edge + 22, label_y)))
    title = f"Test {f.metric} against stored parameters. " + "; ".join(
        f"{arm['name']} {_told(arm, f)} with {text.count(arm['stored'])}" for arm in arms
    )
    return svg.figure((width, height), title, *parts)


def _budget_arm(arm: Arm, f: Frame, y: Axis, place: tuple[float, float, float]) -> Markup:
    x, label_x, label_y = place
    group, mean = arm["group"], y(arm["score"])
    parts = [svg.line([(x + 8, mean), (label_x - 12, label_y), (label_x - 4, label_y)], "leader")]
    if arm["interval"]:
        low, high = map(y, arm["interval"])
        parts.append(svg.tag("line", x1=x, x2=x, y1=low, y2=high, class_=f"whisker g-{group}"))
    n = len(arm["runs"])
    for i, run in enumerate(arm["runs"]):
        aside = 0.0 if n == 1 else 10 * i / (n - 1) - 5
        parts.append(svg.dot(x + aside, y(run["score"]), group, f"{arm['name']}, {_seed_note(run, f)}"))
    parts.append(svg.mark(x, mean, group))
    name = svg.tag("tspan", text.short(arm["name"], 22), class_="name")
    value = svg.tag("tspan", text.score(arm["score"], f.scale), dx=7, class_="value")
    parts.append(svg.tag("text", name, value, x=label_x, y=label_y + 4, class_=f"direct t-{group}"))
    return svg.tag("g", *parts, data_arm=arm["index"], class_="arm")


def _budget_x(arms: Sequence[Arm], left: float, right: float) -> Callable[[float], float]:
    """Where a number of parameters is; 0 has a place of its own to the left of the log axis."""
    sizes = [arm["stored"] for arm in arms if arm["stored"] > 0]
    none = any(arm["stored"] <= 0 for arm in arms)
    low, high = (min(sizes), max(sizes)) if sizes else (1, 10)
    pad = 1.6 if high / low > 3 else 3.0
    start = left + (0.2 * (right - left) if none and sizes else 0)
    axis = Axis(low / pad, high * pad, start, right, log=True)
    zero = left + 0.09 * (right - left)
    return lambda stored: axis(stored) if stored > 0 else zero


def _budget_axis(arms: Sequence[Arm], left: float, right: float, bottom: float) -> list[Markup]:
    place = _budget_x(arms, left, right)
    sizes = [arm["stored"] for arm in arms if arm["stored"] > 0] or [1, 10]
    powers = range(math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes))) + 1)
    shown = [(m * 10.0**p) for p in powers for m in ((1, 3) if len(powers) < 4 else (1,))]
    parts = [svg.tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="base")]
    seen = -99.0
    for value in shown:
        x = place(value)
        if min(sizes) / 3 <= value <= max(sizes) * 3 and x > seen + 30 and x < right - 4:
            parts.append(svg.label(x, bottom + 18, text.count(value), "tick", "middle"))
            seen = x
    if any(arm["stored"] <= 0 for arm in arms):
        parts.append(svg.label(place(0), bottom + 18, "0", "tick", "middle"))
    middle = (left + right) / 2
    return [*parts, svg.label(middle, bottom + 40, "parameters stored (log scale)", "axis", "middle")]


def curves(arm: Arm, f: Frame, key: str) -> Markup | None:
    """`key` ("dev" or "loss") against steps, one line a seed."""
    lines = [
        (run["seed"], [(p["step"], p[key]) for p in run["curve"] if p.get(key) is not None]) for run in arm["runs"]
    ]
    if not any(points for _, points in lines):
        return None
    low, high = f.scores if key == "dev" else f.losses
    x, y, parts = _panel((0, f.steps), (low, high), f.scale if key == "dev" else 1.0)
    parts += [svg.label(x(t), 132, text.count(t), "tick", "middle") for t in x.ticks(4)]
    for seed, points in lines:
        if points:
            drawn = [(x(step), y(value)) for step, value in thin(points, f.per_line)]
            note = svg.tag("title", f"seed {seed}: {key} {text.score(points[-1][1])} at step {points[-1][0]}")
            parts.append(svg.tag("g", note, svg.line(drawn, f"curve g-{arm['group']}")))
    named = f"dev {f.metric}" if key == "dev" else "training loss"
    return svg.figure((300, 142), f"{named} against steps for {arm['name']}, {len(lines)} seeds", *parts)


def rates(arm: Arm, f: Frame) -> Markup | None:
    """Dev score of every learning-rate trial, the chosen one ringed, those that did not finish crossed."""
    trials = [t for t in arm["trials"] if t.get("learning_rate")]
    if not trials:
        return None
    values = [t["learning_rate"] for t in trials]
    x, y, parts = _panel((min(values) / 2, max(values) * 2), f.scores, f.scale, log=True)
    parts += [svg.label(x(v), 132, text.rate(v), "tick", "middle") for v in sorted(set(values))]
    mean = {v: [t["dev"] for t in trials if t["learning_rate"] == v and t.get("dev") is not None] for v in values}
    joined = [(x(v), y(sum(devs) / len(devs))) for v, devs in sorted(mean.items()) if devs]
    parts.append(svg.line(joined, f"curve g-{arm['group']}") if len(joined) > 1 else Markup(""))
    for trial in trials:
        place, rate = x(trial["learning_rate"]), text.rate(trial["learning_rate"])
        if trial.get("dev") is None:
            note = f"{rate}: {trial.get('status')}. {trial.get('reason') or ''}"
            parts.append(svg.cross(place, 106, arm["group"], note))
            continue
        if trial["learning_rate"] == arm["learning_rate"]:
            parts.append(svg.tag("circle", cx=place, cy=y(trial["dev"]), r=8, class_="ring"))
        parts.append(svg.dot(place, y(trial["dev"]), arm["group"], f"{rate}: {text.score(trial['dev'], f.scale)}", 4))
    chosen = text.rate(arm["learning_rate"])
    return svg.figure((300, 142), f"dev {f.metric} of each learning rate of {arm['name']}; {chosen} chosen", *parts)


def thin(points: Sequence[tuple[float, float]], limit: int) -> list[tuple[float, float]]:
    """At most `limit` of the points, evenly spaced, the first and the last among them."""
    if len(points) <= limit:
        return list(points)
    return [points[round(i * (len(points) - 1) / (limit - 1))] for i in range(limit)]


def _panel(
    xs: tuple[float, float], ys: tuple[float, float], scale: float, *, log: bool = False
) -> tuple[Axis, Axis, list[Markup]]:
    x, y = Axis(*xs, 46, 290, log=log), Axis(*ys, 112, 8)
    ticks = y.ticks(4)
    digits = 0 if scale > 1 else (1 if all(abs(t * 10 - round(t * 10)) < 1e-6 for t in ticks) else 2)
    return x, y, [svg.y_axis(y, 46, 290, [(t, f"{t:.{digits}f}".replace("-", "−")) for t in ticks])]


def _apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The positions nearest to those wanted, in their order, `gap` apart where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    blocks: list[tuple[float, list[int]]] = []  # (centre, members)
    for i in order:
        blocks.append((wanted[i], [i]))
        while len(blocks) > 1 and _touch(blocks[-2], blocks[-1], gap):
            (a, left), (b, right) = blocks[-2:]
            both = left + right
            blocks[-2:] = [((a * len(left) + b * len(right)) / len(both), both)]
    placed = {i: c + gap * (k - (len(m) - 1) / 2) for c, m in blocks for k, i in enumerate(m)}
    for n, i in enumerate(order):  # keep inside, from both ends
        placed[i] = max(placed[i], low + gap * n)
    for n, i in enumerate(reversed(order)):
        placed[i] = min(placed[i], high - gap * n)
    return [placed[i] for i in range(len(wanted))]


def _touch(a: tuple[float, list[int]], b: tuple[float, list[int]], gap: float) -> bool:
    return b[0] - gap * (len(b[1]) - 1) / 2 - (a[0] + gap * (len(a[1]) - 1) / 2) < gap


def _range(values: Iterable[float | None], otherwise: tuple[float, float], trim: float = 0.0) -> tuple[float, float]:
    """The range of the values with a little air, without the share `trim` at each end."""
    known = sorted(v for v in values if v is not None and math.isfinite(v))
    if not known:
        return otherwise
    cut = int(trim * len(known))
    low, high = known[cut], known[-1 - cut]
    air = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return low - air, high + air


def _told(arm: Arm, f: Frame) -> str:
    interval = f" ({text.span(arm['interval'], f.scale)})" if arm["interval"] else ""
    return text.score(arm["score"], f.scale) + interval


def _seed_note(run: dict[str, Any], f: Frame) -> str:
    return f"seed {run['seed']}: {text.score(run['score'], f.scale)}"
