"""What all pictures share: their size, how numbers and labels are written."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from markupsafe import Markup

from tunescope.report import svg, text

CHARACTER = 7.0  # the width of one, at 12 px


def own_size(size: tuple[float, float], title: str, parts: Sequence[Markup]) -> Markup:
    """At its own size, unlike the charts, which fill their column."""
    box, (width, height) = f"0 0 {size[0]:.0f} {size[1]:.0f}", (round(1.1 * side) for side in size)
    return svg.tag(
        "svg", *parts, viewBox=box, width=width, height=height, role="img", aria_label=text.clean(title), class_="grid"
    )


def number(value: float) -> str:
    """0.42, 3.1e-5, 0 for what is rounding, – for what is not defined."""
    if not math.isfinite(value):
        return "–"
    if abs(value) < 1e-7:
        return "0"
    if 0.0005 <= abs(value) < 0.01:
        return f"{value:.2g}"
    if 0.01 <= abs(value) < 1000:
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return re.sub(r"e([+-])0", r"e\1", f"{value:.1e}")


def label(one: str, limit: int) -> str:
    return text.short(str(text.clean(one)), limit)
