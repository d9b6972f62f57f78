"""The charts of the page: an arm's scores in its table row, score against budget, and an arm's training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from tunescope.report import svg, text
from tunescope.report.svg import Axis

Arm = dict[str, Any]
NAME, BOLD, VALUE = 22, 9.0, 46.0  # of a label: characters, the width of a bold one at most, that of the score
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
    budget: int | None


def frame(arms: Sequence[Arm], metric: str, scale: float, chance: float | None, budget: int | None) -> Frame:
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
        budget=budget,
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
    parts.append(svg.mark(x(arm["score"]), y, arm["group"], 4.5))
    aside = _aside(len(arm["runs"]), 8)
    parts += [
        svg.dot(x(r["score"]), y + dy, arm["group"], _seed_note(r, f), 1.8)
        for r, dy in zip(arm["runs"], aside, strict=True)
    ]
    return svg.figure(
        (width, height), f"{f.metric} of {arm['name']}: {_score_in_words(arm, f)}", *parts, class_="strip"
    )


def budget(arms: Sequence[Arm], f: Frame) -> Markup:
    """Score against stored parameters (log), every seed a dot, arms labelled at the right."""
    width, height, left, right, top = 940.0, 448.0, 58.0, 22.0 + VALUE + NAME * BOLD, 26.0
    bottom, edge = height - 52, width - right
    sizes = Sizes.of([arm["stored"] for arm in arms], left, edge)
    y = Axis(*f.scores, bottom, top)
    parts = [svg.y_axis(y, left, edge, [(t, text.score(t, f.scale)) for t in y.ticks(6)])]
    parts.append(svg.tag("line", x1=left, x2=edge, y1=bottom, y2=bottom, class_="base"))
    parts += [svg.label(x, bottom + 18, shown, "tick", "middle") for x, shown in sizes.ticks()]
    parts.append(svg.label((left + edge) / 2, bottom + 40, "parameters stored (log scale)", "axis", "middle"))
    if sizes.far:
        parts.append(svg.label(sizes.axis.end + 12, bottom + 5, "//", "break", "middle"))
    if f.chance is not None:
        level = y(f.chance)
        parts.append(svg.tag("line", x1=left, x2=edge, y1=level, y2=level, class_="chance"))
        parts.append(svg.label(edge - 6, level - 6, "chance", "tick", "end"))
    if f.budget and sizes.axis.low <= f.budget <= sizes.axis.high:
        x = sizes.axis(f.budget)
        parts.append(svg.tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="chance"))
        parts.append(svg.label(x, 14, f"budget {f.budget:,}", "tick", "middle"))
    true = [sizes(arm["stored"]) for arm in arms]
    places = _apart(true, 27, left + 14, edge - 24)
    parts += [svg.line([(x, bottom - 10), (at, bottom)], "leader") for x, at in zip(places, true, strict=True)]
    heights = _apart([y(arm["score"]) for arm in arms], 19, top + 6, bottom)
    for arm, x, label_y in zip(arms, places, heights, strict=True):
        parts.append(_budget_arm(arm, f, y, (x, edge + 22, label_y)))
    title = f"Test {f.metric} against stored parameters. " + "; ".join(
        f"{arm['name']} {_score_in_words(arm, f)} with {text.count(arm['stored'])}" for arm in arms
    )
    return svg.figure((width, height), title, *parts)


@dataclass(frozen=True)
class Sizes:
    """Numbers of parameters -> x: a log axis, with 0 and what is far larger than the rest at places of their own."""

    axis: Axis
    zero: float | None
    far: float
    far_x: float
    far_to: float  # the largest; all that are far stand at one place

    @classmethod
    def of(cls, stored: Sequence[float], left: float, right: float) -> Sizes:
        sizes = sorted({size for size in stored if size > 0}) or [1.0]
        gaps = [i for i in range(1, len(sizes)) if sizes[i] >= 30 * sizes[i - 1] and sizes[-1] <= 3 * sizes[i]]
        far, near = (sizes[gaps[0]], sizes[: gaps[0]]) if gaps else (0.0, sizes)
        zero = left + 0.06 * (right - left) if min(stored, default=0) <= 0 else None
        start = left + (0.14 * (right - left) if zero else 0)
        axis = Axis(near[0] / 1.6, near[-1] * 1.6, start, right - (0.14 * (right - left) if far else 0), log=True)
        return cls(axis, zero, far, right - 0.06 * (right - left), sizes[-1])

    def __call__(self, stored: float) -> float:
        if stored <= 0:
            return self.zero or self.axis.start
        return self.far_x if self.far and stored >= self.far else self.axis(stored)

    def ticks(self) -> list[tuple[float, str]]:
        low, high = math.log10(self.axis.low), math.log10(self.axis.high)
        digits = (1, 2, 5) if high - low < 1.5 else (1, 3) if high - low < 3 else (1,)
        round_ = [d * 10.0**power for power in range(math.floor(low), math.ceil(high)) for d in digits]
        shown = [(self.axis(v), text.count(v)) for v in round_ if self.axis.low <= v <= self.axis.high]
        shown += [] if self.zero is None else [(self.zero, "0")]
        ends = dict.fromkeys((text.count(self.far), text.count(self.far_to)))
        return shown + ([(self.far_x, "–".join(ends))] if self.far else [])


def _budget_arm(arm: Arm, f: Frame, y: Axis, place: tuple[float, float, float]) -> Markup:
    x, label_x, label_y = place
    group, mean = arm["group"], y(arm["score"])
    parts = [svg.line([(x + 18, mean), (label_x - 12, label_y), (label_x - 4, label_y)], "leader")]
    if arm["interval"]:
        low, high = map(y, arm["interval"])
        parts.append(svg.tag("line", x1=x, x2=x, y1=low, y2=high, class_=f"whisker g-{group}"))
    for run, aside in zip(arm["runs"], _aside(len(arm["runs"]), 3), strict=True):
        parts.append(svg.dot(x + 11 + aside, y(run["score"]), group, f"{arm['name']}, {_seed_note(run, f)}", 2.6))
    parts.append(svg.mark(x, mean, group))
    value = svg.tag("tspan", text.score(arm["score"], f.scale), class_="value")
    name = svg.tag("tspan", text.middle(arm["name"], NAME), x=label_x + VALUE, class_="name")
    parts.append(svg.tag("text", value, name, x=label_x, y=label_y + 4, class_=f"direct t-{group}"))
    return svg.tag("g", *parts, data_arm=arm["index"], class_="arm")


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
    shown = [t for t in arm["trials"] if t.get("dev") is not None or t.get("status") != "done"]  # others had no score
    trials = [t for t in shown if t["learning_rates"]]
    if not trials:
        return None
    values = [t["learning_rates"][0] for t in trials]
    x, y, parts = _panel((min(values) / 2, max(values) * 2), f.scores, f.scale, log=True)
    parts += [svg.label(x(v), 132, text.rate(v), "tick", "middle") for v in sorted(set(values))]
    scored = sorted((v, t["dev"]) for v, t in zip(values, trials, strict=True) if t.get("dev") is not None)
    joined = [(x(v), y(dev)) for v, dev in dict(scored).items()]  # of one rate the best: another method's may differ
    parts.append(svg.line(joined, f"curve g-{arm['group']}") if len(joined) > 1 else Markup(""))
    for trial in trials:
        place, rate = x(trial["learning_rates"][0]), text.rates(trial["learning_rates"])
        if trial.get("dev") is None:
            note = f"{rate}: {trial.get('status')}. {trial.get('reason') or ''}"
            parts.append(svg.cross(place, 106, arm["group"], note))
            continue
        if trial["learning_rates"] == arm["learning_rates"]:
            parts.append(svg.tag("circle", cx=place, cy=y(trial["dev"]), r=8, class_="ring"))
        parts.append(svg.dot(place, y(trial["dev"]), arm["group"], f"{rate}: {text.score(trial['dev'], f.scale)}", 4))
    chosen = text.rates(arm["learning_rates"])
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
    step = min((b - a for a, b in pairwise(ticks)), default=scale)
    digits = max(0 if scale > 1 else 1, math.ceil(-math.log10(step) - 1e-9))
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


def _score_in_words(arm: Arm, f: Frame) -> str:
    interval = f" ({text.span(arm['interval'], f.scale)})" if arm["interval"] else ""
    return text.score(arm["score"], f.scale) + interval


def _aside(n: int, reach: float) -> list[float]:
    """Where the dots of n seeds go across the axis, so that equal scores do not hide one another."""
    return [0.0 if n == 1 else reach * (2 * i / (n - 1) - 1) for i in range(n)]


def _seed_note(run: dict[str, Any], f: Frame) -> str:
    return f"seed {run['seed']}: {text.score(run['score'], f.scale)}"
