import subprocess
import sys

import numpy as np
import pytest

from tunescope.data.scores import aggregate, of_rows, of_sums, scale, statistics
from tunescope.errors import UserError


def test_accuracy_and_its_companions_by_hand():
    # labels 0 0 0 1 2, predicted 0 0 1 1 3: recalls 2/3, 1, 0; F1 of 0..3: 4/5, 2/3, 0, 0
    pairs = [(0, 0), (0, 0), (0, 1), (1, 1), (2, 3)]
    got = aggregate("accuracy", [(label == predicted, label, predicted) for label, predicted in pairs])
    assert list(got) == ["accuracy", "balanced_accuracy", "macro_f1"]
    assert got["accuracy"] == pytest.approx(3 / 5)
    assert got["balanced_accuracy"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert got["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 4)


@pytest.mark.parametrize(("metric", "width"), [("accuracy", 3), ("exact_match", 1)])
def test_a_mean_of_sums_is_the_mean_of_the_rows_in_them(metric, width):
    generator = np.random.default_rng(0)
    stats = generator.integers(0, 2, (11, width)).astype(float)
    parts = [stats[first:last] for first, last in ((0, 11), (3, 4), (2, 9))]
    expected = [part[:, 0].mean() for part in parts]
    got = of_sums(metric, [part.sum(0) for part in parts], [len(part) for part in parts])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_the_score_of_a_row_is_that_of_a_set_of_this_row_alone():
    outputs, references = ["the cat sat on the mat", "a dog"], [["the cat sat on a mat"], ["a dog", "dogs"]]
    stats = statistics("bleu", outputs, references)
    assert of_rows("bleu", stats) == [aggregate("bleu", [row])["bleu"] for row in stats]
    assert of_rows("exact_match", statistics("exact_match", outputs, references)) == [0.0, 1.0]
    assert statistics("bleu", [], []) == []


def test_the_scale_is_the_best_value():
    assert [scale(name) for name in ("accuracy", "exact_match", "bleu", "nist", "no such one")] == [1, 1, 100, 10, 1]


def test_an_unknown_metric_or_a_wrong_shape_is_refused():
    with pytest.raises(UserError, match=r"^Unknown metric 'rouge'\. Allowed: accuracy, bleu, .*exact_match"):
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
