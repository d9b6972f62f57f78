"""From pilots and long runs on lab worlds to the weights of the forecast, and how far it can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunescope.lab.worlds.trials import MODELS
from tunescope.report.verdict.forecast import OUTCOMES, Features, Weights, answer, features, probabilities
from tunescope.report.verdict.reader import gather

MARGIN = 0.05  # of whole answers: a context no further behind suffices; 300 test rows tell no less apart
LEARNT = 0.5  # of whole answers: below it nobody learned the skill
RIDGE = 0.05  # less decides more worlds, and is wrong more often where it does

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A world: what its pilot showed, what its long run found (one of OUTCOMES), and the two scores there."""

    model: int
    skill: str
    features: Features
    truth: str
    context: float
    delta: float


def case(unit: Mapping[str, Any], outcome: Mapping[str, Any]) -> Case:
    """The features of the pilot, and the truth by the scores of the long run."""
    layers = {"model": {"layers": MODELS[unit["model"]][0]}}
    found = features(gather(outcome["pilot"] | layers, margin=0.0))
    assert found is not None
    scores = {arm["group"]: float(arm["score"] or 0.0) for arm in outcome["full"]["arms"]}
    context, delta = scores["context"], scores["delta"]
    return Case(unit["model"], unit["skill"], found, truth(context, delta), context, delta)


def truth(context: float, delta: float) -> str:
    """What a long run with these shares of whole answers found."""
    if max(context, delta) < LEARNT:
        return OUTCOMES[2]
    return OUTCOMES[0] if context >= delta - MARGIN else OUTCOMES[1]


def fit(cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """The weights of a softmax by penalised maximum likelihood; the constants are not penalised."""
    from scipy.optimize import minimize

    x = np.array([[1.0, *asdict(one.features).values()] for one in cases])
    truths = np.array([OUTCOMES.index(one.truth) for one in cases])

    def loss(flat: Array) -> float:
        weights = flat.reshape(2, -1)
        totals = np.concatenate([x @ weights.T, np.zeros((len(x), 1))], 1)
        likely = totals[np.arange(len(x)), truths] - np.logaddexp.reduce(totals, 1)
        return float(-likely.sum() + RIDGE * (weights[:, 1:] ** 2).sum())

    found = minimize(loss, np.zeros(2 * x.shape[1])).x.reshape(2, -1)
    names = ("constant", *asdict(cases[0].features))
    return {
        outcome: dict(zip(names, (round(float(value), 3) for value in row), strict=True))
        for outcome, row in zip(OUTCOMES, found, strict=False)
    }


def held_out(cases: Sequence[Case]) -> list[dict[str, float]]:
    """For every world its probabilities by weights fitted without any world of the same pretrained model."""
    fitted: dict[int, Weights] = {}
    for model in {one.model for one in cases}:
        fitted[model] = fit([one for one in cases if one.model != model])
    return [probabilities(one.features, fitted[one.model]) for one in cases]


def judged(cases: Sequence[Case], chances: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How often it decided, and was right then; undecided are counted among worlds that somebody learned.

    A decision on a world that nobody learned is wrong.
    """
    said = [answer(each) for each in chances]
    decided = [one.truth == what for one, what in zip(cases, said, strict=True) if what != "no verdict"]
    open_ones = [what for one, what in zip(cases, said, strict=True) if one.truth != OUTCOMES[2]]
    return {
        "worlds": len(cases),
        "learned": len(open_ones),
        "decided": len(decided),
        "right": sum(decided),
        "share_right": sum(decided) / len(decided) if decided else 0.0,
        "share_undecided": open_ones.count("no verdict") / len(open_ones) if open_ones else 0.0,
    }


def reliability(cases: Sequence[Case], chances: Sequence[Mapping[str, float]], bins: int = 5) -> list[dict[str, float]]:
    """Of all three probabilities of all worlds, by bins: how many, their mean, and the share that came true."""
    pairs = [(each[name], one.truth == name) for one, each in zip(cases, chances, strict=True) for name in OUTCOMES]
    found = []
    for index in range(bins):
        inside = [pair for pair in pairs if min(int(pair[0] * bins), bins - 1) == index]
        if inside:
            found.append(
                {
                    "low": index / bins,
                    "high": (index + 1) / bins,
                    "forecasts": len(inside),
                    "mean": sum(chance for chance, _ in inside) / len(inside),
                    "came_true": sum(true for _, true in inside) / len(inside),
                }
            )
    return found
