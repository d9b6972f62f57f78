"""CIDEr, METEOR and COCO's ROUGE-L. What needs Java is tried where pycocoevalcap is, their formulas always."""

import importlib.util
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_tools import e2e, score
from reference.cider import cider

from tunescope.data.metric import find_metric, metric_names
from tunescope.data.metrics import _coco, rouge_l_coco
from tunescope.data.metrics import cider as ours
from tunescope.data.row import Row
from tunescope.data.scores import aggregate, of_rows, statistics
from tunescope.errors import UserError
from tunescope.tasks.kinds.generation import Generation

HAS_JARS = importlib.util.find_spec("pycocoevalcap") is not None and shutil.which("java") is not None
needs_jars = pytest.mark.skipif(not HAS_JARS, reason="pip install 'tunescope[metrics]', and Java")

text = st.lists(st.sampled_from("abcde"), max_size=12).map(" ".join)
some_rows = st.lists(st.tuples(text, st.lists(text, min_size=1, max_size=3)), min_size=1, max_size=5)


@given(some_rows)
@settings(max_examples=150, deadline=None)
def test_cider_of_tokens_is_the_definitions(some):
    outputs, references = [one for one, _ in some], [own for _, own in some]
    np.testing.assert_allclose(ours.scores(outputs, references), cider(outputs, references), rtol=0, atol=1e-12)


def test_cocos_rouge_takes_precision_and_recall_from_different_references():
    # a b c d: the first reference gives precision 2/4 and recall 2/2, the second 3/4 and 3/6
    p, r, beta = 3 / 4, 2 / 2, 1.2
    assert rouge_l_coco.f("a b c d", ["a b", "x a b c y z"]) == pytest.approx((1 + beta**2) * p * r / (r + beta**2 * p))
    assert rouge_l_coco.f("a", ["b"]) == 0.0
    assert rouge_l_coco.f("", ["a"]) == 0.0


def test_meteor_of_summed_counts_is_what_the_program_says_of_them():
    # four lines that METEOR 1.5 answered to SCORE, and what it answered to EVAL of them: each alone, then together
    lines = """7 6 3 3 2 2 2 2 0 0 0 0 1 1 0 0 0 0 0 0 2 5 5
    9 14 4 8 5 5 4 4 0 0 0 0 0 0 0 0 0 0 0 0 3 9 9
    0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
    4 3 2 0 2 2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 2 2 2"""
    stats = [tuple(map(float, line.split())) for line in lines.split("\n")]
    alone = [0.4180616856074147, 0.39473932649031535, 0.0, 0.2711864406779661]
    np.testing.assert_allclose(of_rows("meteor", stats), 100 * np.array(alone), rtol=0, atol=1e-12)
    assert aggregate("meteor", stats)["meteor"] == pytest.approx(35.64914484297282, abs=1e-12)


@needs_jars
@pytest.mark.parametrize(
    ("metric", "value"),
    [("rouge_l_coco", 62.529304420059894), ("cider", 1.311750786977557), ("meteor", 41.60941877332599)],
)
def test_of_e2e_texts_they_are_pycocoevalcaps(metric, value):
    assert score(metric, *e2e()) == pytest.approx(value, abs=1e-9)


@needs_jars
def test_texts_become_the_same_tokens_as_in_pycocoevalcap_and_no_character_breaks_a_line():
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    texts = ["It's a (family-friendly) pub -- really!", "", "The Wrestlers, near Raja...", '"£20-25" don\'t.']
    oracle = PTBTokenizer().tokenize({at: [{"caption": one}] for at, one in enumerate(texts)})
    assert list(_coco.tokenised(tuple(texts))) == [oracle[at][0] for at in range(len(texts))]
    assert _coco.tokenised(("a\rb\u2028c\x85d", "Café Ünï", "x\ny")) == ("a b c d", "café ünï", "x y")


@needs_jars
def test_meteor_takes_the_reference_that_fits_and_its_own_separator_in_a_text_is_none():
    outputs = ["the cat sat", "the cat ||| sat", ""]
    stats = statistics("meteor", outputs, [["a dog", "the cat sat"], ["the cat sat"], ["x"]])
    whole, parted, empty = of_rows("meteor", stats)
    assert (whole, empty) == (pytest.approx(100.0), 0.0)
    assert 0 < parted < 60  # three tokens more


@needs_jars
def test_meteor_of_a_set_with_whole_rows_is_pycocoevalcaps():
    from pycocoevalcap.meteor.meteor import Meteor

    references = [["the cat sat on the mat"], ["a dog ran home"], ["the pub is in the city", "a pub near the river"]]
    part = ["the cat sat on the mat", "a dog ran home", "the pub is near a river"]
    oracle = Meteor()
    with oracle.meteor_p as program:
        for outputs in (part, [one[0] for one in references]):
            said, _ = oracle.compute_score(dict(enumerate(references)), {at: [one] for at, one in enumerate(outputs)})
            assert score("meteor", outputs, references) == pytest.approx(100 * said, abs=1e-9)
        program.kill()


def test_what_is_not_installed_is_told_in_one_line_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(_coco, "find_spec", lambda name: None)
    rows = [Row({"input": "a", "target": "b"}, "train.jsonl", 1)]
    told = r"^cider, meteor and rouge_l_coco need pycocoevalcap, which is not installed\. Type: pip install"
    for metric in ("cider", "meteor", "rouge_l_coco"):
        with pytest.raises(UserError, match=told):
            Generation(also=(metric,)).prepare({"train": rows}, None, model_kind="decoder")
    monkeypatch.setattr(_coco, "find_spec", lambda name: object())
    monkeypatch.setattr(_coco.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"need Java, and there is no 'java' on the path\. .* apt install default-jre"):
        Generation(metric="cider").prepare({"train": rows}, None, model_kind="decoder")


def test_a_java_program_that_fails_is_told_in_one_line(monkeypatch, tmp_path):
    class Failed:
        returncode, stderr, stdout = 1, b"first\nError: Unable to access jarfile meteor-1.5.jar\n", b""

    monkeypatch.setattr(_coco.subprocess, "run", lambda *given, **more: Failed)
    with pytest.raises(
        UserError, match=r"^Java could not run METEOR: Error: Unable to access jarfile meteor-1\.5\.jar$"
    ):
        _coco.java("METEOR", ["-jar", "meteor-1.5.jar"], ["x"], tmp_path)


def test_every_metric_says_its_tokens_its_case_and_its_range():
    for name in metric_names():
        told = find_metric(name).described(False)
        assert "case" in told
        assert "0" in told or name == "exact_match"
        assert (" as in " in told) == (name != "exact_match")
