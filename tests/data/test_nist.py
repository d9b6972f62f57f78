import numpy as np
import pytest
from hypothesis import given, settings
from metric_tools import e2e, parted, score, segments
from reference.nist import nist

from tunescope.data.metrics.nist import tokens
from tunescope.data.scores import of_sums, statistics


@given(segments)
@settings(max_examples=150, deadline=None)
def test_nist_from_summed_statistics_is_the_definitions(some):
    outputs, references = parted(some)
    oracle = nist([tokens(one) for one in outputs], [[tokens(one) for one in own] for own in references])
    assert score("nist", outputs, references) == pytest.approx(oracle, abs=1e-9)


def test_nist_of_e2e_texts_is_that_of_the_challenges_own_script():
    assert score("nist", *e2e()) == pytest.approx(6.859343071981116, abs=1e-9)


def test_other_sums_of_rows_keep_the_information_of_the_whole_set():
    outputs, references = ["a b c", "a d", "b"], [["a b c d"], ["a b d"], ["c b", "b a"]]
    stats = np.array(statistics("nist", outputs, references))
    sums = stats[0] + 2 * stats[1]
    got = of_sums("nist", [sums], [3])[0]
    ratio = min(1, sums[5] / sums[10])
    expected = sum(sums[n] / max(sums[5 + n], 1) for n in range(5)) * 0.5 ** ((np.log(ratio) / np.log(1.5)) ** 2)
    assert got == pytest.approx(expected, abs=1e-12)
    assert got != pytest.approx(score("nist", ["a b c", "a d", "a d"], [references[0], references[1], references[1]]))


def test_tokens_are_mtevals():
    # by hand from the script's rules
    assert tokens("It's 1,000.50 (km) -- A-1-B, 3-4 x&amp;y <skipped>Z.") == (
        *("it's", "1,000.50", "(", "km", ")", "--", "a-1", "-", "b", ",", "3", "-", "4", "x", "&", "y", "z", "."),
    )
    assert tokens("5.x .5") == ("5", ".", "x", ".", "5")
    assert tokens("") == ()
