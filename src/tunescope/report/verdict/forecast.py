"""What the full comparison would find, as a pilot shows it: two lines.

A pilot has one seed and a good half of a run's steps. Where its best context, or what trains nothing, comes close to
its best delta and has learnt the task, a context will suffice. Where it has hardly begun to, and the delta is far
ahead, in a decoder of few layers, weights are needed: a prefix cannot turn what such a model attends to (Petrov et al.
2023, arXiv:2310.19698). In deeper ones, in encoders and in encoder-decoders a context that is so far behind in a pilot
mostly comes up in longer runs, and nothing is said. Scores are shares of the way from chance to the end of the metric's
scale. How often that is right, `tunescope reproduce verdict-calibration` tells on lab worlds whose truth a long run
tells.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tunescope.report.verdict.evidence import Arm, Evidence

SUFFICES, NEEDED, OPEN = "context suffices", "weights needed", "no verdict"
CLOSE = 0.1  # of the way: a context no further behind is as good
LEARNT = 0.5  # and has learnt the task if it came half of the way
BEGUN = 0.25  # of the way: a context that came so far is on its way
FAR = 0.2  # a delta further ahead is not caught up with
SHALLOW = 3  # in a decoder of no more layers
DEEPEST = 12  # layers of the worlds that it was held against, which have 1 at the least
AS_GOOD = 0.05  # of the scale: a head no further behind does as well


@dataclass(frozen=True)
class Shares:
    """The best context's, or untrained arm's, and the best delta's share of the way from chance to the end.

    layers: of the model. causal: whether it is a decoder.
    """

    context: float
    delta: float
    layers: int
    causal: bool = True

    @property
    def is_behind(self) -> bool:
        """Whether the context has hardly begun to learn the task and is far behind the delta."""
        return self.context < BEGUN and self.delta - self.context > FAR

    @property
    def stays_behind(self) -> bool:
        """Whether a context that is behind in such a model's pilot stays there: then weights are needed."""
        return self.is_behind and self.causal and self.layers <= SHALLOW

    @property
    def is_outside(self) -> bool:
        """Whether the model is deeper than any world that the forecast was held against."""
        return self.layers > DEEPEST


def shares(evidence: Evidence) -> Shares | None:
    """The two numbers, or None where a kind of arm is missing."""
    context, delta = best_context(evidence), evidence.delta
    if evidence.context is None or context is None or delta is None:
        return None
    return Shares(_share(context.score, evidence), _share(delta.score, evidence), evidence.layers, evidence.causal)


def best_context(evidence: Evidence) -> Arm | None:
    """The best on dev of what changes no weights, trained or not."""
    arms = [arm for arm in (evidence.context, evidence.untrained) if arm is not None]
    return max(arms, key=lambda arm: -math.inf if arm.dev is None else arm.dev, default=None)


def _share(score: float, evidence: Evidence) -> float:
    chance = evidence.chance or 0.0
    return max(score - chance, 0.0) / (evidence.scale - chance) if chance < evidence.scale else 0.0


def answer(found: Shares) -> str:
    """The outcome that the two lines tell."""
    if found.context > LEARNT and found.context >= found.delta - CLOSE:
        return SUFFICES
    return NEEDED if found.stays_behind else OPEN


def of(evidence: Evidence) -> dict[str, Any] | None:
    """The shares and what they were read from, as JSON; None where `shares` has none."""
    found = shares(evidence)
    return None if found is None else {"shares": asdict(found), "reasons": reasons(evidence, found)}


def reasons(evidence: Evidence, found: Shares) -> str:
    """The shares in words."""
    context, delta = best_context(evidence), evidence.delta
    assert context is not None and delta is not None
    said = (
        f"{context.shown} came {found.context:.0%} of the way from chance to the best there is, {delta.shown} "
        f"{found.delta:.0%}"
    )
    if found.is_behind and not found.stays_behind:
        model = f"a model of {found.layers} layers" if found.layers > SHALLOW else "a model that is no decoder"
        said += f"; in {model} a context so far behind in a pilot often comes up in longer runs"
    if found.is_outside:
        said += (
            f"; a model of {found.layers} layers lies outside of the worlds that forecasts were held against, which "
            f"have 1 to {DEEPEST}"
        )
    return said
