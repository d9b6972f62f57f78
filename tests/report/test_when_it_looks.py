"""At how many seeds a comparison looks, by cases made by hand, and how often looking goes wrong, by draws."""

import numpy as np
import pytest

from tunescope.report.verdict import stats
from tunescope.report.verdict.interim_looks import level, planned


@pytest.mark.parametrize(
    ("first", "most", "looks"),
    [
        (3, 20, (3, 6, 12, 20)),
        (3, 12, (3, 6, 12)),
        (3, 3, (3,)),
        (3, 24, (3, 6, 12, 24)),  # 20 would be a look for four seeds
        (5, 20, (5, 12, 20)),
        (1, 20, (3, 6, 12, 20)),  # fewer than three decide nothing
        (1, 2, (2,)),
        (20, 20, (20,)),
        (3, 100, (3, 6, 12, 20, 40, 80, 100)),
    ],
)
def test_looks_are_planned_before_the_first(first, most, looks):
    assert planned(first, most) == looks


@pytest.mark.parametrize(("first", "most"), [(0, 3), (4, 3)])
def test_a_first_look_beyond_the_last_is_refused(first, most):
    with pytest.raises(ValueError, match=rf"planned\({first}, {most}\): the first look has from 1 to {most} seeds"):
        planned(first, most)


def test_all_looks_together_leave_five_in_a_hundred():
    assert level((3,)) == 0.95
    assert level((3, 6, 12, 20)) == 0.9875


def test_looks_at_the_margin_go_wrong_five_times_in_a_hundred_at_most():
    g = np.random.default_rng(0)
    looks, wrong, peeked = planned(3, 20), 0, 0
    for _ in range(1500):
        gaps = -0.02 + 0.02 * g.normal(size=20)  # the truth lies at the margin: either side is wrong
        runs = {seed: np.full((4, 1), gap) for seed, gap in enumerate(gaps)}
        none = {seed: np.zeros((4, 1)) for seed in runs}
        found = [stats.paired({s: runs[s] for s in range(n)}, none, level=level(looks)) for n in looks]
        wrong += any(one.low > -0.02 or one.high < -0.02 for one in found)
        halves = [1.96 * gaps[:n].std(ddof=1) / n**0.5 for n in range(3, 21)]
        peeked += any(abs(gaps[:n].mean() + 0.02) > half for n, half in zip(range(3, 21), halves, strict=True))
    assert wrong / 1500 <= 0.05
    assert peeked / 1500 > 0.3  # which is why
