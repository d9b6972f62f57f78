"""No interval of an accuracy leaves [0, 1], nor one of a difference of two [-1, 1], whatever the answers were."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tunescope.report.verdict import stats
from tunescope.report.verdict.variance import Pool

ACCURACY = stats.scorer("accuracy")


@st.composite
def answers(draw):
    """Two arms' tables {seed: (rows, 3)} of right and wrong, inputs that rows share, a pool or none, and a level."""
    seeds, rows = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    share = draw(st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]))
    numbers = np.random.default_rng(draw(st.integers(0, 10**6)))
    arms = [{one: (numbers.random((rows, 3)) < share) * 1.0 for one in range(seeds)} for _ in range(2)]
    inputs = draw(st.none() | st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    pool = draw(st.none() | st.builds(Pool, st.sampled_from([1e-9, 0.01, 1.0]), st.sampled_from([0.1, 3.0])))
    return arms, inputs, pool, draw(st.sampled_from([0.5, 0.95, 0.999]))


@given(answers())
@settings(max_examples=150, deadline=None)
def test_an_interval_holds_its_score_and_stays_in_the_range(given_answers):
    (one, other), inputs, pool, level = given_answers
    for table in (one, other):
        got = stats.interval(table, ACCURACY, level=level, pool=pool, inputs=inputs)
        assert 0.0 <= got.low <= got.value <= got.high <= 1.0
        np.testing.assert_allclose(got.value, np.mean([runs[:, 0].mean() for runs in table.values()]), atol=1e-12)
    gap = stats.paired(one, other, ACCURACY, level=level, pool=pool, inputs=inputs)
    assert -1.0 <= gap.low <= gap.value <= gap.high <= 1.0
