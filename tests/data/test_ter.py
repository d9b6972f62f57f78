import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_tools import parted, ragged, score, segments
from sacrebleu.metrics import TER

from tunescope.data.metric import find_metric


@given(segments, st.booleans())
@settings(max_examples=100, deadline=None)
def test_ter_from_summed_statistics_is_sacrebleus_though_hopeless_references_are_not_tried(some, lowercase):
    outputs, references = parted(some)
    oracle = TER(case_sensitive=not lowercase).corpus_score(outputs, ragged(references)).score
    assert score("ter", outputs, references, lowercase) == pytest.approx(oracle, abs=1e-9)


def test_a_moved_run_of_words_is_one_edit_and_lower_is_better():
    assert score("ter", ["c d a b"], [["a b c d"]]) == 25.0
    assert score("ter", ["a b c d"], [["a b c d"]]) == 0.0
    assert score("ter", ["x y z a b"], [["a"]]) == 400.0
    assert not find_metric("ter").higher_is_better
    assert find_metric("ter").described(False).endswith("; lower is better")
