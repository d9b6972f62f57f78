"""What the simulation of intervals counts, and that its made-up rows are what they are said to be."""

from types import SimpleNamespace

import numpy as np
import pytest

from tunescope.report.verdict import interim_looks
from tunescope.reproduce.recipes import _simulated_rows as simulated
from tunescope.reproduce.recipes import interval_coverage as recipe

UNIT = {"metric": "accuracy", "mean": 0.7, "rows": 20}
MARGIN = 0.02


@pytest.fixture
def intervals(monkeypatch):
    """The comparisons to come have these intervals; what each was asked with."""
    asked = []

    def are(*some):
        left = iter(some)

        def paired(*arms, **how):
            asked.append(how)
            low, high = next(left)
            return SimpleNamespace(low=low, high=high)

        monkeypatch.setattr(recipe.stats, "paired", paired)
        return asked

    return are


def test_an_interval_holds_zero_and_is_undecided_where_it_holds_the_margin(intervals):
    """Two of four hold 0, three the margin behind it."""
    asked = intervals((-0.03, 0.01), (-0.05, -0.01), (-0.03, -0.015), (-0.01, 0.03))
    found = recipe._coverage(UNIT, np.random.default_rng(0), (3, 0.05, "both arms"), 4, MARGIN)
    assert (found["coverage"], found["refused"]) == (0.5, 0.75)
    assert found["half"] == pytest.approx((0.02 + 0.02) / 2)  # of .02, .02, .0075 and .02 the middle two
    assert all(one["pool"] is not None for one in asked)


def test_two_seeds_decide_nothing(intervals):
    intervals((0.01, 0.03))
    assert recipe._coverage(UNIT, np.random.default_rng(0), (2, 0.0, "all arms"), 1, MARGIN)["refused"] == 1.0


def test_looks_by_the_rule_are_as_sure_as_the_rule_says_and_end_with_the_first_that_decides(intervals):
    arms = [{seed: np.full((5, 1), 0.5) for seed in range(max(interim_looks.LOOKS))} for _ in range(2)]
    looks = interim_looks.planned(interim_looks.LOOKS[0], interim_looks.LOOKS[-1])
    asked = intervals((-0.03, 0.03), (-0.05, -0.03))
    assert recipe._by_rule(arms, MARGIN) == ("worse", looks[1])
    assert [one["level"] for one in asked] == [pytest.approx(1 - interim_looks.ERROR / len(looks))] * 2


def test_a_context_that_is_far_behind_is_told_to_be_worse():
    found = recipe._looked({"deviation": 0.01, "gap": -0.1}, 3, MARGIN)
    assert [(one["weights needed"], one["context suffices"]) for one in found.values()] == [(1.0, 0.0)] * 2


def test_of_several_settings_the_lowest_coverage_stands_first():
    assert recipe._range([0.94, 0.91, 0.97]).text == "0.910 (0.970)"


def test_scores_of_seeds_have_the_mean_and_the_deviation_that_are_asked_for():
    found = simulated.seed_scores(np.random.default_rng(0), 0.97, 0.1, 200_000)
    assert found.mean() == pytest.approx(0.97, abs=1e-3) and found.std() == pytest.approx(0.1, abs=1e-3)


def test_most_of_an_arm_s_answers_come_of_the_row_s_own_difficulty():
    """Two seeds at one half agree where both have it, and in half of the other cases."""
    generator, both = np.random.default_rng(0), simulated.SHARED**2
    kind = simulated.KINDS["accuracy"]
    one, other = kind.draw(generator, np.array([0.5, 0.5]), kind.common(generator, 100_000))[..., 0]
    assert (one == other).mean() == pytest.approx(both + (1 - both) / 2, abs=0.01) and simulated.SHARED > 0.5
