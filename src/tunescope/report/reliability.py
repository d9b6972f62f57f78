"""Forecast probabilities against how often they came true, as a drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from tunescope.report import svg

SIDE, LEFT, TOP = 300.0, 48.0, 16.0


def diagram(bins: Sequence[Mapping[str, float]]) -> Markup:
    """The <svg>: a dot a bin, the larger the more forecasts, and the line on which a forecaster is calibrated."""
    x, y = svg.Axis(0, 1, LEFT, LEFT + SIDE), svg.Axis(0, 1, TOP + SIDE, TOP)
    parts: list[Markup] = [
        svg.tag("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, class_="s-none"),
        svg.tag("line", x1=x(0), y1=y(0), x2=x(1), y2=y(1), stroke="#b8b2a7", stroke_width=1),
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts += [
            svg.label(x(tick), TOP + SIDE + 18, f"{tick:g}", "tick", "middle"),
            svg.label(LEFT - 8, y(tick) + 4, f"{tick:g}", "tick", "end"),
        ]
    most = max((one["forecasts"] for one in bins), default=1.0)
    for one in bins:
        note = f"{one['forecasts']:.0f} forecasts, mean {one['mean']:.2f}, came true {one['came_true']:.2f}"
        radius = 3 + 9 * (one["forecasts"] / most) ** 0.5
        place = {"cx": x(one["mean"]), "cy": y(one["came_true"]), "r": radius}
        parts.append(svg.tag("circle", svg.tag("title", note), **place, fill="#0068a8", fill_opacity="0.7"))
    parts.append(svg.label(LEFT + SIDE / 2, TOP + SIDE + 40, "forecast probability", "side", "middle"))
    parts.append(svg.label(LEFT, TOP - 4, "share that came true", "side", "start"))
    told = "; ".join(f"forecast {one['mean']:.2f}, came true {one['came_true']:.2f}" for one in bins)
    return svg.figure((LEFT + SIDE + 20, TOP + SIDE + 52), f"Reliability of forecasts: {told}.", *parts, class_="grid")
