"""The parts that place things; what they look like is for the eye."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_example import example

from tunescope.report import charts, text
from tunescope.report.svg import Axis
from tunescope.report.view import view


@given(st.lists(st.floats(0, 100), max_size=12), st.floats(1, 30))
def test_labels_are_kept_apart_in_their_order_and_inside(wanted, gap):
    got = charts._apart(wanted, gap, 0.0, 100.0)
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    room = min(gap, 100 / max(1, len(wanted) - 1))
    assert np.all(np.diff([got[i] for i in order]) >= room - 1e-9)
    assert all(-1e-9 <= x <= 100 + 1e-9 for x in got)


def test_labels_that_do_not_touch_stay_where_they_are():
    assert charts._apart([10.0, 50.0, 30.0], 5, 0, 100) == [10.0, 50.0, 30.0]


def test_labels_that_touch_move_as_little_as_they_can():
    assert charts._apart([50.0, 50.0], 10, 0, 100) == [45.0, 55.0]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_inside_the_axis_and_there_are_at_least_two(low, span):
    axis = Axis(low, low + span, 0, 100)
    ticks = axis.ticks(5)
    assert 2 <= len(ticks) <= 6
    assert all(low - span * 1e-6 <= t <= low + span * (1 + 1e-6) for t in ticks)


def test_a_log_axis_places_the_geometric_mean_in_the_middle():
    assert Axis(1.0, 10_000.0, 0, 300, log=True)(100.0) == pytest.approx(150)


def test_values_beyond_an_axis_are_held_at_its_edge():
    axis = Axis(0, 1, 200, 0)
    assert (axis(-5), axis(7)) == (200, 0)


def test_nothing_and_far_more_than_the_rest_have_places_of_their_own():
    sizes = charts.Sizes.of([0, 90_000, 100_000, 124_000_000], 0, 1000)
    assert sizes(0) == sizes.zero == 60
    assert sizes.axis.start < sizes(90_000) < sizes(100_000) < sizes.axis.end < sizes(124_000_000) == sizes.far_x
    assert [shown for _, shown in sizes.ticks()] == ["100k", "0", "124M"]


def test_of_two_sizes_that_are_far_both_are_told():
    sizes = charts.Sizes.of([90_000, 22_000_000, 60_000_000], 0, 1000)
    assert sizes(22_000_000) == sizes(60_000_000) == sizes.ticks()[-1][0]
    assert sizes.ticks()[-1][1] == "22M–60M"


def test_a_wide_range_without_a_gap_is_one_axis():
    sizes = charts.Sizes.of([1e3, 1e4, 1e5, 1e6], 0, 1000)
    assert (sizes.zero, sizes.far) == (None, 0.0)


@pytest.mark.parametrize(("low", "high", "scale"), [(87.2, 87.9, 100.0), (8.1, 8.6, 10.0), (0.001, 0.009, 1.0)])
def test_the_labels_of_an_axis_all_differ_and_are_their_places(low, high, scale):
    _, y, (drawn,) = charts._panel((0, 1), (low, high), scale)
    told = [one.text for one in ET.fromstring(f"<g>{drawn}</g>").iter("text")]
    assert [float(one) for one in told] == pytest.approx(y.ticks(4)) and len(set(told)) == len(told) >= 2


def test_arms_of_one_size_stand_apart_and_each_points_at_its_size():
    seen = view(example())
    arms = [arm | {"stored": 4096} for arm in seen.done]
    drawn = ET.fromstring(str(charts.budget(arms, seen.frame)))
    feet = [one.get("points") or one.get("d") for one in drawn if one.get("class") == "leader"]
    ends = {re.findall(r"[\d.]+", foot)[-2] for foot in feet}
    begins = {re.findall(r"[\d.]+", foot)[0] for foot in feet}
    assert len(feet) == len(begins) == len(arms) and len(ends) == 1


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 5000])
def test_thinning_keeps_the_first_and_the_last_point(n):
    points = [(float(i), float(i)) for i in range(n)]
    got = charts.thin(points, 10)
    assert len(got) == min(n, 10)
    assert (got[0], got[-1]) == (points[0], points[-1])


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (text.score(-0.0714), "−0.071"),
        (text.score(0.0714, sign=True), "+0.071"),
        (text.score(41.267, 100.0), "41.3"),
        (text.score(None), "–"),
        (text.score(float("nan")), "–"),
        (text.count(999), "999"),
        (text.count(98_304), "98.3k"),
        (text.count(999_900), "1000k"),
        (text.count(124_439_808), "124M"),
        (text.rate(0.002), "0.002"),
        (text.rate(3e-5), "3e-5"),
        (text.rate(None), "–"),
        (text.seconds(3.14), "3.1 s"),
        (text.seconds(402.5), "6.7 min"),
        (text.seconds(90_000), "25.0 h"),
        (text.memory(371), "371 MB"),
        (text.memory(1980), "1.9 GB"),
        (text.fact([0, 1]), "0, 1"),
        (text.fact({"text": "x", "n": 1200}), "text x, n 1,200"),
        (text.fact(None), "none"),
        (text.fact(True), "yes"),
    ],
)
def test_numbers_are_short(shown, wanted):
    assert shown == wanted
