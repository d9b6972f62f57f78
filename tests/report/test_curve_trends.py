"""Whether an arm still learns: lines drawn by hand, and curves that are flat but for their noise."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tunescope.report.verdict import stability
from tunescope.report.verdict.curve import fall, reaches, rise


def runs(curves, key="dev"):
    return [{"curve": [{"step": 100 * (i + 1), key: y} for i, y in enumerate(one)]} for one in curves]


def test_the_gain_is_the_slope_of_the_last_half_for_as_many_steps_again():
    values = [0.2, 0.9, 0.5, 0.55, 0.58, 0.66]
    slope = scipy_stats.linregress([300, 400, 500, 600], values[2:]).slope
    assert rise(runs([values] * 3), noise=0.0).gain == pytest.approx(600 * slope)
    by_shares = scipy_stats.linregress([300, 400, 500, 600], np.log(values[2:])).slope
    assert fall(runs([values], "loss")).gain == pytest.approx(values[-1] * (1 - np.exp(600 * by_shares)))


def test_a_curve_needs_two_points_in_its_last_half():
    assert rise(runs([[0.5]]), 0.0) is None
    assert rise([{"curve": []}, {}], 0.0) is None
    assert rise(runs([[None, None, None, 0.5]]), 0.0) is None


@pytest.mark.parametrize("seeds", [1, 3, 5])
@pytest.mark.parametrize("points", [3, 5, 10])
@pytest.mark.parametrize("rows", [50, 200])
def test_flat_curves_are_called_rising_five_times_in_a_hundred_at_most(seeds, points, rows):
    g = np.random.default_rng(0)
    noise = stability.noise(0.8, 1.0, rows)
    scores = g.binomial(rows, 0.8, size=(2000, seeds, points)) / rows
    fired = sum(rise(runs(one), noise).certain for one in scores)
    assert fired / 2000 <= 0.06  # 5 % and two standard errors of it


def test_curves_on_the_same_rows_or_that_wander_with_their_seed_are_no_exception():
    g = np.random.default_rng(0)
    noise = stability.noise(0.8, 1.0, 200)
    same = g.binomial(200, 0.8, size=(2000, 1, 1)) / 200 + 0.2 * noise * g.normal(size=(2000, 3, 5))
    wander = 0.8 + (3 * noise * g.normal(size=(2000, 3, 5))).cumsum(2)
    for scores in (same, wander):
        assert sum(rise(runs(one), noise).certain for one in scores) / 2000 <= 0.06


def test_flat_losses_are_called_falling_five_times_in_a_hundred_at_most_and_by_one_seed_never():
    g = np.random.default_rng(0)
    losses = 1 + 0.1 * g.normal(size=(2000, 3, 6))
    assert sum(fall(runs(one, "loss")).certain for one in losses) / 2000 <= 0.06
    assert not fall(runs([[3.0, 2.0, 1.0]], "loss")).certain


def test_a_steep_rise_is_seen():
    g = np.random.default_rng(0)
    scores = np.array([0.5, 0.6, 0.7, 0.8]) + 0.03 * g.normal(size=(200, 3, 4))
    assert sum(rise(runs(one), 0.03).certain for one in scores) > 190


def test_a_loss_reaches_another_if_it_comes_within_a_tenth_of_the_way():
    falling = fall(runs([[5.0, 4.0, 3.2, 2.8]] * 3, "loss"))  # to .7 of itself in two intervals, to .49 in four: 1.372
    assert falling.gain == pytest.approx(2.8 - 1.372)
    assert reaches(2.8, falling, 1.22)  # .28 + .9 * 1.22 = 1.378
    assert not reaches(2.8, falling, 1.21)
    assert fall(runs([[3.0, 2.0, 0.0, 0.0]] * 3, "loss")).gain <= 0.0  # what is at zero stays there
    assert not reaches(None, falling, 0.2)
    assert not reaches(2.8, falling, None)
    assert not reaches(2.8, None, 0.2)


def test_one_seed_is_certain_of_a_rise_that_is_beyond_what_its_rows_leave_open():
    curve, steps = [0.5, 0.6, 0.7, 0.8], [200, 300, 400]  # the last half
    error = 1 / np.sqrt(((np.array(steps) - 300.0) ** 2).sum())  # of the slope, for each that a score has
    edge = 0.001 / (scipy_stats.norm.ppf(0.95) * error)
    assert rise(runs([curve]), 0.99 * edge).certain and not rise(runs([curve]), 1.01 * edge).certain
