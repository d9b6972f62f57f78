"""What the full comparison would find: three probabilities, read from a pilot's curves and scores.

They are a softmax over three outcomes, each linear in the six numbers of `Features`; the weights were fitted on lab
worlds whose outcome a long run told (`tunescope reproduce verdict-calibration`; results/verdict-calibration.json), from
pilots whose runs had two fifths of the long run's steps. A pilot's verdict rests on them, and only a pilot shows them.
Real models, real data, classification and other sizes are outside of what they were fitted on; so is a pilot whose runs
are shorter than two fifths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tunescope.report.verdict.evidence import Evidence

OUTCOMES = ("context suffices", "weights needed", "neither learns it")
SURE = 0.8  # a pilot decides at this probability: there it was right 95 times in 100 on held-out lab worlds
SMALL = 0.01  # nats a token: losses below it are alike

Weights = Mapping[str, Mapping[str, float]]  # outcome -> feature -> weight; the last outcome's are 0


@dataclass(frozen=True)
class Features:
    """What the probabilities are read from.

    context, delta: the score of the best arm of that kind, as a share of the metric's scale.
    context_loss, delta_loss: log of its last training loss, in nats a token (plus SMALL).
    latent: the best score without training, as a share of the scale.
    depth: log of the number of layers: what a context adds in one layer, the next can work on.

    The fall of the context's loss within the run, and how far the delta moved attention over the content, were tried
    and told nothing more on the lab worlds. Features and penalty were chosen on earlier runs of those worlds.
    The threshold SURE was chosen on the runs that the weights were fitted on.
    """

    context: float
    delta: float
    context_loss: float
    delta_loss: float
    latent: float
    depth: float


WEIGHTS: Weights = {
    "context suffices": {
        "constant": -5.362,
        "context": 3.095,
        "context_loss": -1.106,
        "delta": 2.191,
        "delta_loss": -0.655,
        "depth": 2.68,
        "latent": 0.641,
    },
    "weights needed": {
        "constant": -0.545,
        "context": -0.358,
        "context_loss": 0.128,
        "delta": 1.331,
        "delta_loss": -1.216,
        "depth": -0.023,
        "latent": -0.457,
    },
}
FITTED_ON = "64 small worlds of digit sequences, 16 pretrained decoders of 1 to 4 layers"


def features(evidence: Evidence) -> Features | None:
    """The numbers, or None where a kind of arm is missing or has no curve."""
    context, delta = evidence.context, evidence.delta
    if context is None or delta is None:
        return None
    if context.last_loss is None or delta.last_loss is None:
        return None
    return Features(
        context=context.score / evidence.scale,
        delta=delta.score / evidence.scale,
        context_loss=math.log(max(context.last_loss, 0.0) + SMALL),
        delta_loss=math.log(max(delta.last_loss, 0.0) + SMALL),
        latent=evidence.untrained.score / evidence.scale if evidence.untrained else 0.0,
        depth=math.log(evidence.layers),
    )


def probabilities(found: Features, weights: Weights) -> dict[str, float]:
    """Outcome -> probability: exp(constant + weights . features), as shares of their sum."""
    totals = dict.fromkeys(OUTCOMES, 0.0)
    for name, row in weights.items():
        totals[name] = row["constant"] + sum(row[key] * value for key, value in asdict(found).items())
    highest = max(totals.values())
    parts = {name: math.exp(total - highest) for name, total in totals.items()}
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def answer(chances: Mapping[str, float]) -> str:
    """The outcome that is SURE and has an answer in weights or context; else no verdict."""
    likely = max(OUTCOMES[:2], key=lambda name: chances[name])
    return likely if chances[likely] >= SURE else "no verdict"


def of(evidence: Evidence) -> dict[str, Any] | None:
    """The probabilities with what they were read from, as JSON; None where `features` has none."""
    found = features(evidence)
    if found is None or not WEIGHTS:
        return None
    return {
        "probabilities": {name: round(chance, 3) for name, chance in probabilities(found, WEIGHTS).items()},
        "features": asdict(found),
        "reasons": reasons(evidence),
        "fitted_on": FITTED_ON,
    }


def reasons(evidence: Evidence) -> str:
    """The features in words."""
    context, delta = evidence.context, evidence.delta
    assert context is not None and delta is not None
    parts = [
        f"{context.shown} against {delta.shown}",
        f"last training losses {context.last_loss:.3g} and {delta.last_loss:.3g} nats a token",
    ]
    parts += [f"untrained: {evidence.untrained.shown}"] if evidence.untrained else []
    parts.append(f"{evidence.layers} layer{'s' * (evidence.layers != 1)}")
    return "; ".join(parts)
