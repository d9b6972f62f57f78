import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_tools import e2e, parted, ragged, score, segments
from sacrebleu.metrics import BLEU

from tunescope.data.scores import of_sums


@given(segments, st.booleans())
@settings(max_examples=200, deadline=None)
def test_bleu_from_summed_statistics_is_sacrebleus_with_any_number_of_references(some, lowercase):
    outputs, references = parted(some)
    oracle = sacrebleu.corpus_bleu(outputs, ragged(references), lowercase=lowercase).score
    assert score("bleu", outputs, references, lowercase) == pytest.approx(oracle, abs=1e-9)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 30)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
@settings(max_examples=200, deadline=None)
def test_bleu_of_any_sums_of_rows_is_sacrebleus(some, times):
    rows = []
    for length, matches, reference in some:
        totals = [max(0, length - n) for n in range(4)]
        rows.append([length, reference, *(min(m, t) for m, t in zip(matches, totals, strict=True)), *totals])
    repeats = [1, *times[: len(rows) - 1]]
    sums = [sum(count * row[i] for count, row in zip(repeats, rows, strict=True)) for i in range(10)]
    oracle = BLEU.compute_bleu(sums[2:6], sums[6:], sums[0], sums[1], smooth_method="exp").score
    got = of_sums("bleu", [sums, sums], [sum(repeats)] * 2)
    np.testing.assert_allclose(got, [oracle, oracle], rtol=0, atol=1e-9)


def test_bleu_of_e2e_texts_without_case_is_the_recorded_one():
    assert score("bleu", *e2e(), lowercase=True) == pytest.approx(50.763934994565304, abs=1e-9)
