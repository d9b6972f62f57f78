"""Weights fitted against a likelihood written out, truths by hand, and counts of what was decided."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from tunescope.lab.worlds import trials
from tunescope.lab.worlds.calibration import RIDGE, Case, fit, held_out, judged, reliability, truth
from tunescope.lab.worlds.skills import SKILLS
from tunescope.report.verdict.forecast import OUTCOMES, Features, probabilities

ZERO = Features(**dict.fromkeys(Features.__dataclass_fields__, 0.0))


def cases(count: int = 60) -> list[Case]:
    """Worlds whose outcome the context's score decides, with noise."""
    draw = np.random.default_rng(0)
    found = []
    for index in range(count):
        gap, other = draw.normal(), draw.normal()
        kind = int(np.digitize(gap + 0.3 * draw.normal(), (-0.7, 0.7)))
        outcome = (OUTCOMES[1], OUTCOMES[2], OUTCOMES[0])[kind]
        found.append(Case(index % 6, "add1", replace(ZERO, context=gap, latent=other), outcome, 0.0, 0.0))
    return found


@pytest.mark.parametrize(
    ("context", "delta", "expected"),
    [
        (0.95, 0.99, "context suffices"),
        (0.90, 0.99, "weights needed"),
        (0.99, 0.20, "context suffices"),
        (0.49, 0.49, "neither learns it"),
        (0.10, 0.51, "weights needed"),
    ],
)
def test_the_truth_of_a_world_by_hand(context, delta, expected):
    assert truth(context, delta) == expected


def test_fitted_weights_are_where_the_penalised_likelihood_is_flat():
    known = cases()
    weights = fit(known)

    def loss(found: dict[str, dict[str, float]]) -> float:
        likely = sum(np.log(probabilities(one.features, found)[one.truth]) for one in known)
        penalty = sum(value**2 for row in found.values() for name, value in row.items() if name != "constant")
        return float(RIDGE * penalty - likely)

    best = loss(weights)
    for outcome, row in weights.items():
        for name in row:
            for step in (-0.05, 0.05):
                moved = {**weights, outcome: {**row, name: row[name] + step}}
                assert loss(moved) > best - 1e-6, (outcome, name)


def test_a_world_is_judged_by_weights_that_never_saw_its_model():
    known = cases()
    expected = probabilities(known[7].features, fit([one for one in known if one.model != known[7].model]))
    assert held_out(known)[7] == pytest.approx(expected)


def test_what_was_decided_and_right_is_counted_and_a_decision_where_nobody_learned_is_wrong():
    sure = {name: dict.fromkeys(OUTCOMES, 0.02) | {name: 0.96} for name in OUTCOMES}
    open_ = dict.fromkeys(OUTCOMES, 1 / 3)
    one = Case(0, "add1", ZERO, OUTCOMES[0], 1.0, 1.0)
    known = [
        one,
        one,
        replace(one, truth=OUTCOMES[1]),
        replace(one, truth=OUTCOMES[2]),
        replace(one, truth=OUTCOMES[2]),
    ]
    chances = [sure[OUTCOMES[0]], open_, sure[OUTCOMES[1]], sure[OUTCOMES[1]], sure[OUTCOMES[2]]]
    assert judged(known, chances) == {
        "worlds": 5,
        "learned": 3,
        "decided": 3,
        "right": 2,
        "share_right": pytest.approx(2 / 3),
        "share_undecided": pytest.approx(1 / 3),
    }


def test_the_reliability_of_forecasts_by_bins():
    one = Case(0, "add1", ZERO, OUTCOMES[0], 1.0, 1.0)
    found = reliability([one, one], [dict(zip(OUTCOMES, p, strict=True)) for p in ((0.9, 0.1, 0.0), (0.5, 0.5, 0.0))])
    assert [(row["forecasts"], row["came_true"]) for row in found] == [(3, 0.0), (2, 0.5), (1, 1.0)]
    assert found[1]["mean"] == pytest.approx(0.5)


def test_sixty_worlds_and_more_differ_in_skills_depth_heads_width_and_mix():
    all_of_them = trials.trials()
    assert len(all_of_them) >= 60
    columns = list(zip(*trials.MODELS, strict=True))
    assert all(len(set(column)) >= 3 for column in columns)
    for one in all_of_them:
        assert one.skill in SKILLS and set(one.recipe.mix) <= set(SKILLS)
    kinds = {one.skill in one.recipe.mix for one in all_of_them}
    assert kinds == {True, False}
    assert set(asdict(all_of_them[0])) == {"model", "skill"}
