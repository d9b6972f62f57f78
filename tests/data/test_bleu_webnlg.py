"""BLEU of the WebNLG challenge: its tokens by hand, its score by sacrebleu on the files that the script would write."""

import re

import pytest
import sacrebleu
from hypothesis import given, settings
from metric_tools import score, segments

from tunescope.data.metrics import bleu_webnlg


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Aarhus Airport's runway is 2,702.0 long.", "aarhus airport ' s runway is 2 , 702 . 0 long ."),
        ("Ørsted – Åbo's Café", "orsted - abo ' s cafe"),
        ("A_Wizard_of_Mars  (1999)\n", "a_wizard_of_mars ( 1999 )"),
        ("", ""),
    ],
)
def test_the_tokens_are_small_plain_and_split_at_every_sign(text, tokens):
    assert bleu_webnlg.tokens(text) == tokens


@given(segments)
@settings(max_examples=60, deadline=None)
def test_the_score_is_that_of_the_scripts_files(some):
    """The file of the j-th references has an empty line where an input has none; there are three such files."""

    def line(text):
        return " ".join(" ".join(re.split(r"(\W)", text.lower())).split())

    files = [[line(own[j]) if j < len(own) else "" for _, own in some] for j in range(3)]
    outputs = [line(output) for output, _ in some]
    oracle = sacrebleu.corpus_bleu(outputs, files, tokenize="none", smooth_method="none", force=True)
    assert score("bleu_webnlg", [one for one, _ in some], [own for _, own in some]) == pytest.approx(
        oracle.score, abs=1e-9
    )


def test_case_and_a_fourth_reference_change_nothing():
    output, references = "the cat sat on the mat", ["The cat sat on a mat", "A cat sat", "There is a mat"]
    expected = score("bleu_webnlg", [output], [references])
    assert 0 < expected < 100
    assert score("bleu_webnlg", ["THE Cat sat on the mat"], [[*references, output]]) == pytest.approx(expected)


def test_signs_that_stand_for_others_are_written_out_as_these():
    assert bleu_webnlg.tokens("5 km\u00b2, the \ufb01rst") == "5 km2 , the first"  # a square and a ligature
