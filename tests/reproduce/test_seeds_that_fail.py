"""What choosing a rate at the first seed adds to a mean, against arithmetic by hand."""

import pytest

from tunescope.reproduce.recipes import _seeds_that_fail as failing


@pytest.mark.parametrize(("learns", "rates"), [(0.3, 1), (0.3, 3), (0.3, 6), (0.7, 3)])
def test_the_best_of_several_tries_lifts_a_mean_by_what_it_has_more_chances_to_learn(learns, rates):
    """200 development rows tell .85 from .52 every time, so the first seed learns if any of its rates does."""
    unit = {"learns": learns, "high": 0.85, "low": 0.52, "rates": rates}
    more = (1 - (1 - learns) ** rates - learns) * (0.85 - 0.52)
    found = failing.chosen(unit, 100_000)
    assert found["first"] == pytest.approx(more, abs=0.003)
    assert found["above"] == pytest.approx(more / 3, abs=0.002)
