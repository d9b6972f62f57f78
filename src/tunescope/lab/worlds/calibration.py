"""From pilots and long runs on lab worlds: how often a pilot decides, and how often it is right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunescope.lab.worlds.base_table import base
from tunescope.lab.worlds.questions import question
from tunescope.report.verdict import verdict
from tunescope.report.verdict.forecast import (
    CLOSE,
    NEEDED,
    OPEN,
    SHALLOW,
    SUFFICES,
    Shares,
    answer,
    shares,
)
from tunescope.report.verdict.reader import gather

MARGIN = 0.05  # of the way from chance to the best there is: a context no further behind suffices
LEARNT = 0.5  # of the way: below it nobody learned the skill
NEITHER = "neither learns it"
SETTLED_ON = (  # the worlds that the forecast's numbers were settled on; what is told of the others was not looked at
    *range(0, 135, 3),
    *range(1, 134, 3),
    *(135, 138, 141, 144, 147, 150, 153, 156, 159, 162, 165, 168, 171, 174, 177),
    *range(136, 175, 3),
    *range(2, 17, 3),
)


@dataclass(frozen=True)
class Case:
    """A world: what its pilot showed and said, and what its long run found: one of the outcomes, and two shares."""

    world: int
    architecture: str
    depth: int
    kind: str
    pilot: Shares
    truth: str
    context: float
    delta: float

    @property
    def said(self) -> str:
        return answer(self.pilot)


def case(world: int, outcome: Mapping[str, Any]) -> Case | None:
    """The pilot's shares, and the truth by the long run; None where one of the pilot's arms did not finish.

    Of the contexts of the long run the best on dev counts. Where one was good enough by itself no delta was run, which
    could not have been ahead by MARGIN; it then counts as 1.
    """
    asked = question(world)
    model = outcome["pilot"].get("model", {}) | {"kind": base(asked.model).body.kind}
    found = shares(gather(dict(outcome["pilot"]) | {"model": model}, margin=0.0))
    if found is None:
        return None
    chance = outcome["pilot"]["task"].get("chance") or 0.0
    best = {
        group: max((one for one in outcome["long"] if one["group"] == group), key=_dev, default=None)
        for group in ("context", "delta")
    }
    context, delta = (1.0 if one is None else max(one["score"] - chance, 0.0) / (1 - chance) for one in best.values())
    return Case(world, asked.architecture, asked.depth, asked.kind, found, truth(context, delta), context, delta)


def _dev(one: Mapping[str, Any]) -> float:
    return -math.inf if one["dev"] is None else float(one["dev"])


def truth(context: float, delta: float) -> str:
    """What a long run that came so far found."""
    if max(context, delta) < LEARNT:
        return NEITHER
    return SUFFICES if context >= delta - MARGIN else NEEDED


def judged(answers: Sequence[tuple[str, str]]) -> dict[str, float]:
    """How often it decided, and was right then; undecided are counted among worlds that somebody learned.

    answers: of every world what was said and what is true. That a context suffices, or weights are needed, is wrong of
    a world that nobody learned.
    """
    decided = [said == truth for said, truth in answers if said != OPEN]
    learned = [said for said, truth in answers if truth != NEITHER]
    return {
        "worlds": len(answers),
        "learned": len(learned),
        "decided": len(decided),
        "right": sum(decided),
        "share_right": sum(decided) / len(decided) if decided else 0.0,
        "share_undecided": learned.count(OPEN) / len(learned) if learned else 0.0,
    }


def whole_said(answer: str) -> str:
    """What the answer of a whole comparison says of a world, as a truth or OPEN."""
    return {verdict.ALIKE: SUFFICES, verdict.NEITHER: NEITHER}.get(answer, answer)


def groups(cases: Iterable[Case]) -> list[tuple[str, list[Case]]]:
    """All, those that nothing was settled on, then by architecture, kind of skill and truth, each with its name."""
    every = list(cases)
    found = [("all", every), ("not looked at before", [one for one in every if one.world not in SETTLED_ON])]
    for key in ("architecture", "kind", "truth"):
        names = dict.fromkeys(getattr(one, key) for one in every)
        found += [(f"{key}: {name}", [one for one in every if getattr(one, key) == name]) for name in names]
    return found


def bins(cases: Iterable[Case]) -> dict[str, list[bool]]:
    """What a pilot showed -> of every world that showed it whether a context suffices there, as the long run says."""
    found = dict[str, list[bool]]()
    for one in cases:
        found.setdefault(_shown(one), []).append(one.truth == SUFFICES)
    return {name: found[name] for name in SHOWN if name in found}


SHOWN = (
    "the context is close: context suffices",
    "close, but neither is half of the way",
    "behind, but on its way or not far",
    f"far behind, more than {SHALLOW} layers or no decoder",
    f"far behind, a decoder of {SHALLOW} layers or fewer: weights needed",
)


def _shown(one: Case) -> str:
    if one.said != OPEN:
        return SHOWN[0] if one.said == SUFFICES else SHOWN[-1]
    if one.pilot.context >= one.pilot.delta - CLOSE:
        return SHOWN[1]
    return SHOWN[3] if one.pilot.is_behind else SHOWN[2]
