"""Every claim as a mark in its paper's row, in the column of what came of it: the findings' first picture."""

from __future__ import annotations

from itertools import groupby

from markupsafe import Markup

from scripts.claims import HOLDS, MEANS, OTHER_WAY, UNTOLD, Claim, outcome
from scripts.finding_pictures import figure
from tunescope.report import svg

# Its name, and the kind of method whose colour and mark it has.
COLUMNS = {OTHER_WAY: ("the other way", "delta"), UNTOLD: ("cannot be told", "none"), HOLDS: ("holds", "context")}
LEFT, WIDE, STEP, TOP = 190.0, 236.0, 15.0, 40.0
ABREAST = 14  # marks side by side


def outcomes(claims: list[Claim]) -> str:
    """Every claim as a mark in its paper's row, in the column of what came of it; claims of a paper stand together."""
    parts, y = [], TOP
    for place, (name, _) in enumerate(COLUMNS.values()):
        parts.append(svg.label(LEFT + WIDE * place, 20, name, "tick on", "start"))
    for paper, of_paper in groupby(claims, lambda one: one.paper):
        told: dict[str, list[Claim]] = {which: [] for which in COLUMNS}
        for one in of_paper:
            told[next(which for which in COLUMNS if outcome(one).startswith(which))].append(one)
        parts.append(svg.tag("line", x1=8, x2=LEFT + 3 * WIDE, y1=y, y2=y, class_="rule"))
        parts.append(svg.label(8, y + STEP + 4, paper, "side", "start"))
        for place, (which, found) in enumerate(told.items()):
            parts += _marks(found, COLUMNS[which][1], LEFT + WIDE * place, y + STEP)
        y += STEP * (max(-(-len(found) // ABREAST) for found in told.values()) + 1)
    parts.append(
        svg.label(LEFT, y + 14, "a mark a claim; hollow: by the means alone, without intervals", "tick", "start")
    )
    return figure((LEFT + 3 * WIDE, y + 26), "What came of each claim.", parts)


def _marks(claims: list[Claim], group: str, left: float, top: float) -> list[Markup]:
    """So many abreast, with how many there are behind the last; what a mark stands for is its title."""
    parts = []
    for index, one in enumerate(claims):
        x, y = left + 5.5 + STEP * (index % ABREAST), top + STEP * (index // ABREAST)
        told = outcome(one)
        note = svg.tag("title", f"{one.says}: {told.replace('*', '')} ({one.model})")
        hollow = svg.tag("circle", cx=x, cy=y, r=5.5, class_=f"hollow g-{group}")
        parts.append(svg.tag("g", note, hollow if MEANS in told else svg.mark(x, y, group, 5.5)))
    if claims:
        last = len(claims) - 1
        x, y = left + STEP * (last % ABREAST + 1) + 2, top + STEP * (last // ABREAST)
        parts.append(svg.label(x, y + 4, str(len(claims)), "tick", "start"))
    return parts
