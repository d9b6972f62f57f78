"""Every claim in its paper's group, with a mark in the column of what came of it: the findings' first picture."""

from __future__ import annotations

from scripts.claims import HOLDS, MEANS, OTHER_WAY, UNTOLD, Claim, outcome
from scripts.finding_pictures import figure
from tunescope.report import svg
from tunescope.report.drawing import label

# Its name, and the kind of method whose colour and mark it has.
COLUMNS = {OTHER_WAY: ("the other way", "delta"), UNTOLD: ("cannot be told", "none"), HOLDS: ("holds", "context")}


def outcomes(claims: list[Claim]) -> str:
    """Every claim in its paper's group, with a mark in the column of what came of it."""
    left, wide, step, top = 410.0, 108.0, 20.0, 40.0
    parts, y, paper = [], top, ""
    for place, (name, _) in enumerate(COLUMNS.values()):
        parts.append(svg.label(left + wide * (place + 0.5), 20, name, "tick on", "middle"))
    for one in claims:
        if one.paper != paper:
            y += step * (0.3 if not paper else 0.7)
            parts.append(svg.label(8, y + 4, one.paper, "side", "start"))
            y, paper = y + step, one.paper
        told = outcome(one)
        place = next(index for index, which in enumerate(COLUMNS) if told.startswith(which))
        _, group = list(COLUMNS.values())[place]
        x = left + wide * (place + 0.5)
        parts.append(svg.label(20, y + 4, label(one.says, 64), "tick", "start"))
        parts.append(svg.tag("line", x1=left, x2=left + 3 * wide, y1=y, y2=y, class_="rule"))
        note = svg.tag("title", f"{one.says}: {told.replace('*', '')} ({one.model})")
        hollow = svg.tag("circle", cx=x, cy=y, r=5.5, class_=f"hollow g-{group}")
        parts.append(svg.tag("g", note, hollow if MEANS in told else svg.mark(x, y, group, 5.5)))
        parts.append(svg.label(left + 3 * wide + 10, y + 4, one.model, "tick", "start"))
        y += step
    parts.append(svg.label(left, y + 12, "hollow: by the means alone, without intervals", "tick", "start"))
    return figure((left + 3 * wide + 150, y + 24), "What came of each claim.", parts)
