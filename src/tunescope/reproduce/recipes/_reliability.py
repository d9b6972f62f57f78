"""Of pilots alike in what they showed: in how many worlds a context suffices, each with its interval, as a drawing."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from scipy.stats import binomtest

from tunescope.report import svg

WIDTH, LEFT, TOP, STEP, RIGHT = 360.0, 330.0, 30.0, 30.0, 90.0
COLOUR = "#0068a8"


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    found = binomtest(right, of).proportion_ci(0.95, "wilson")
    return float(found.low), float(found.high)


def drawn(bins: Mapping[str, Sequence[bool]], name: str) -> Markup:
    """The <svg>. bins: what a pilot showed -> of every such world whether it is so; name: of the share."""
    kept = {label: found for label, found in bins.items() if found}
    x, bottom = svg.Axis(0.0, 1.0, LEFT, LEFT + WIDTH), TOP + STEP * len(kept)
    parts: list[Markup] = [svg.label(LEFT, TOP - 12, name, "side", "start")]
    parts.append(svg.x_axis(x, bottom, [(tick, f"{tick:g}") for tick in x.ticks()]))
    for number, (label, found) in enumerate(kept.items()):
        y, share = TOP + STEP * (number + 0.5), sum(found) / len(found)
        low, high = wilson(sum(found), len(found))
        parts.append(svg.label(LEFT - 12, y + 4, label, "tick", "end"))
        parts.append(svg.tag("line", x1=LEFT, x2=LEFT + WIDTH, y1=y, y2=y, class_="rule"))
        parts.append(svg.tag("line", x1=x(low), x2=x(high), y1=y, y2=y, stroke=COLOUR, stroke_width=2))
        note = svg.tag("title", f"{share:.2f}, {low:.2f} to {high:.2f}")
        parts.append(svg.tag("circle", note, cx=x(share), cy=y, r=5, fill=COLOUR))
        parts.append(svg.label(LEFT + WIDTH + 12, y + 4, f"{sum(found)} of {len(found)}", "tick", "start"))
    told = "; ".join(f"{label}: {sum(found)} of {len(found)}" for label, found in kept.items())
    return svg.figure((LEFT + WIDTH + RIGHT, bottom + 34), f"{name}. {told}", *parts, class_="grid")
