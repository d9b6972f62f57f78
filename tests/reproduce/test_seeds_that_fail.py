"""What choosing a rate at the first seed adds to a mean, against arithmetic by hand."""

import numpy as np
import pytest

from tunescope.reproduce.recipes import _seeds_that_fail as failing
from tunescope.reproduce.recipes import interval_coverage


@pytest.mark.parametrize(("learns", "rates"), [(0.3, 1), (0.3, 3), (0.3, 6), (0.7, 3)])
def test_the_best_of_several_tries_lifts_a_mean_by_what_it_has_more_chances_to_learn(learns, rates):
    """200 development rows tell .85 from .52 every time, so the first seed learns if any of its rates does."""
    unit = {"learns": learns, "high": 0.85, "low": 0.52, "rates": rates}
    more = (1 - (1 - learns) ** rates - learns) * (0.85 - 0.52)
    found = failing.chosen(unit, 100_000)
    assert found["first"] == pytest.approx(more, abs=0.003)
    assert found["above"] == pytest.approx(more / 3, abs=0.002)


def test_a_rate_is_chosen_by_development_rows_which_hardly_tell_like_scores():
    """Chosen by the scores themselves the first seed would be above by nearly half of the .02."""
    found = failing.chosen({"learns": 0.5, "high": 0.52, "low": 0.50, "rates": 6}, 100_000)
    assert 0.001 < found["first"] < 0.006


def test_who_peeks_has_the_normal_interval_of_the_sample_s_own_deviation():
    """Three gaps of deviation .01 about -.0097: 1.96 * .01 / sqrt 3 is .0113, so that -.02 is not left behind yet."""
    gaps = [-0.0197, -0.0097, 0.0003, *[-0.0097] * 17]
    arms = [{seed: np.array([gap]) for seed, gap in enumerate(gaps)}, {seed: np.zeros(1) for seed in range(20)}]
    assert interval_coverage._peeking(arms, 0.02) == ("not worse", 4)
