import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_tools import e2e, parted, ragged, score, segments
from sacrebleu.metrics import CHRF


@given(segments, st.booleans())
@settings(max_examples=200, deadline=None)
def test_chrf_from_summed_statistics_is_sacrebleus_with_any_number_of_references(some, lowercase):
    outputs, references = parted(some)
    oracle = CHRF(lowercase=lowercase).corpus_score(outputs, ragged(references)).score
    assert score("chrf", outputs, references, lowercase) == pytest.approx(oracle, abs=1e-9)


def test_chrf_of_e2e_texts_is_the_recorded_one():
    assert score("chrf", *e2e()) == pytest.approx(68.6076283351898, abs=1e-9)
