import subprocess
import sys

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU

from tunescope.errors import UserError
from tunescope.tasks.metrics import aggregate, aggregate_many, bleu_stats, exact_match_stats

sentence = st.lists(st.sampled_from(["the", "The", "cat", "sat", "on", "mat.", "it's", "1,000"]), max_size=9).map(
    " ".join
)
segments = st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=4)), min_size=1, max_size=6)


def ragged(references):
    most = max(map(len, references))
    return [[row[i] if i < len(row) else None for row in references] for i in range(most)]


@given(segments, st.booleans())
@settings(max_examples=200, deadline=None)
def test_bleu_from_summed_statistics_is_sacrebleus_with_any_number_of_references(some, lowercase):
    hypotheses, references = [h for h, _ in some], [r for _, r in some]
    oracle = sacrebleu.corpus_bleu(hypotheses, ragged(references), lowercase=lowercase).score
    stats = [bleu_stats(h, r, lowercase=lowercase) for h, r in some]
    assert aggregate("bleu", stats) == {"bleu": pytest.approx(oracle, abs=1e-9)}


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 30)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
@settings(max_examples=200, deadline=None)
def test_resampled_bleu_is_sacrebleus_of_the_resampled_sums(some, times):
    rows = []
    for length, matches, reference in some:
        totals = [max(0, length - n) for n in range(4)]
        rows.append([length, reference, *(min(m, t) for m, t in zip(matches, totals, strict=True)), *totals])
    weights = [1, *times[: len(rows) - 1]]
    sums = [sum(w * row[i] for w, row in zip(weights, rows, strict=True)) for i in range(10)]
    oracle = BLEU.compute_bleu(sums[2:6], sums[6:], sums[0], sums[1], smooth_method="exp").score
    got = aggregate_many("bleu", rows, [weights, weights])
    np.testing.assert_allclose(got, [oracle, oracle], rtol=0, atol=1e-9)


def test_accuracy_and_its_companions_by_hand():
    # labels 0 0 0 1 2, predicted 0 0 1 1 3: recalls 2/3, 1, 0; F1 of 0..3: 4/5, 2/3, 0, 0
    pairs = [(0, 0), (0, 0), (0, 1), (1, 1), (2, 3)]
    got = aggregate("accuracy", [(label == predicted, label, predicted) for label, predicted in pairs])
    assert list(got) == ["accuracy", "balanced_accuracy", "macro_f1"]
    assert got["accuracy"] == pytest.approx(3 / 5)
    assert got["balanced_accuracy"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert got["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 4)


@pytest.mark.parametrize(("metric", "width"), [("accuracy", 3), ("exact_match", 1)])
def test_a_resampled_mean_is_the_mean_of_the_repeated_rows(metric, width):
    generator = np.random.default_rng(0)
    stats = generator.integers(0, 2, (11, width)).astype(float)
    weights = generator.multinomial(11, np.ones(11) / 11, size=7)
    expected = [np.repeat(stats[:, 0], times).mean() for times in weights]
    np.testing.assert_allclose(aggregate_many(metric, stats, weights), expected, rtol=0, atol=1e-12)


def test_exact_match_knows_any_reference_and_ignores_runs_of_space():
    assert exact_match_stats("a  b\n", ["x", " a b"]) == (1.0,)
    assert exact_match_stats("A b", ["a b"]) == (0.0,)
    assert exact_match_stats("A b", ["a B"], lowercase=True) == (1.0,)
    assert exact_match_stats("", ["a"]) == (0.0,)
    assert aggregate("exact_match", [(1,), (0,), (0,), (1,)]) == {"exact_match": 0.5}


def test_an_unknown_metric_or_a_wrong_shape_is_refused():
    with pytest.raises(UserError, match=r"Unknown metric 'rouge'\. Allowed: accuracy, exact_match, bleu\."):
        aggregate("rouge", [(1,)])
    with pytest.raises(UserError, match=r"bleu needs at least one row of 10 statistics, not shape \(1, 2\)"):
        aggregate("bleu", [(1, 2)])
    with pytest.raises(UserError, match="exact_match needs at least one row"):
        aggregate("exact_match", [])


def test_importing_the_tasks_does_not_import_torch():
    code = "import sys, tunescope; had = 'torch' in sys.modules; import tunescope.tasks; "
    code += "print('skip' if had else 'torch' in sys.modules or 'transformers' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    if said == "skip":
        pytest.skip("tunescope itself imports torch")
    assert said == "False"
