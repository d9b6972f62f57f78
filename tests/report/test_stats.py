"""Oracles: scipy's own bootstrap, a literal loop, arithmetic by hand and the exact McNemar test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tunescope.data.scores import statistics
from tunescope.report.verdict import stats


def outcomes(rate, rows=211, seed=0):
    return np.random.default_rng(seed).binomial(1, rate, size=(rows, 1)).astype(float)


def test_with_one_seed_the_interval_is_scipys_percentile_bootstrap():
    rows = outcomes(0.7)
    got = stats.interval({0: rows}, resamples=20_000)
    oracle = scipy_stats.bootstrap(
        (rows[:, 0],), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert got.value == rows.mean()
    assert got.over == "rows only"
    np.testing.assert_allclose([got.low, got.high], [oracle.low, oracle.high], atol=1.5 / 211)


def test_with_one_seed_the_paired_interval_is_scipys_of_the_differences():
    a, b = outcomes(0.8), outcomes(0.7, seed=5)
    got = stats.paired({3: a}, {3: b}, resamples=20_000)
    oracle = scipy_stats.bootstrap(
        ((a - b)[:, 0],), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert got.value == pytest.approx(a.mean() - b.mean(), abs=1e-15)
    np.testing.assert_allclose([got.low, got.high], [oracle.low, oracle.high], atol=1.5 / 211)


def test_the_replicates_equal_a_literal_loop_over_seeds_and_rows():
    runs = np.stack([outcomes(0.6, rows=13, seed=s) for s in range(3)])
    got = stats._replicates(runs, stats.mean_score, resamples=50, seed=7)

    generator = np.random.default_rng(7)
    seeds = generator.integers(3, size=(50, 3))
    rows = generator.integers(13, size=(50, 13))
    for i in range(50):
        per_seed = [np.mean([runs[s, r, 0] for r in rows[i]]) for s in range(3)]
        centre, drawn = np.mean(per_seed), np.mean([per_seed[s] for s in seeds[i]])
        assert got[i] == pytest.approx(centre + (3 / 2) ** 0.5 * (drawn - centre), abs=1e-12)


def test_the_variance_of_pure_seed_noise_is_the_unbiased_variance_of_a_mean():
    scores = np.array([0.5, 0.7, 0.9, 0.6])
    runs = {seed: np.full((11, 1), score) for seed, score in enumerate(scores)}  # no noise between rows
    stacked = np.stack(list(runs.values()))
    replicates = stats._replicates(stacked, stats.mean_score, resamples=40_000, seed=0)
    assert replicates.var() == pytest.approx(scores.var(ddof=1) / 4, rel=0.03)


def test_the_same_rows_and_seeds_are_drawn_for_both_arms():
    runs = {seed: outcomes(0.6, seed=seed) for seed in range(3)}
    noise = np.random.default_rng(0).normal(scale=1e-6, size=(len(runs[0]), 1))
    shifted = {seed: rows + 0.25 + noise for seed, rows in runs.items()}
    got = stats.paired(shifted, runs)
    np.testing.assert_allclose([got.value, got.low, got.high], 0.25, atol=1e-5)
    assert got.over == "seeds and rows"


def test_swapping_the_arms_flips_the_interval():
    a = {seed: outcomes(0.6, seed=seed) for seed in range(2)}
    b = {seed: outcomes(0.5, seed=10 + seed) for seed in range(2)}
    one, other = stats.paired(a, b), stats.paired(b, a)
    np.testing.assert_allclose([one.low, one.high], [-other.high, -other.low], atol=1e-12)


def test_only_seeds_that_both_arms_have_are_compared():
    a = {0: outcomes(0.6), 1: outcomes(0.6, seed=1)}
    got = stats.paired(a, {1: outcomes(0.5, seed=2), 2: outcomes(0.1)})
    assert got.seeds == 1
    assert got.value == pytest.approx(a[1].mean() - outcomes(0.5, seed=2).mean())


def test_resampling_in_pieces_gives_the_same_draws(monkeypatch):
    runs = {0: outcomes(0.6), 1: outcomes(0.8)}
    whole = stats.interval(runs, resamples=100)
    monkeypatch.setattr(stats, "_CELLS", 1)
    assert stats.interval(runs, resamples=100) == whole


def test_a_ratio_of_sums_is_scored_on_the_sums_and_not_row_by_row():
    def ratio(rows, times):
        return (times @ rows)[:, 0] / (times @ rows)[:, 1]

    rows = np.array([[1.0, 1.0], [0.0, 3.0]])
    assert stats.interval({0: rows}, ratio).value == 0.25  # the mean of the rows' ratios would be 0.5


@pytest.mark.parametrize(("only_a", "only_b"), [(30, 5), (12, 12), (40, 38), (2, 25)])
def test_the_interval_excludes_zero_where_the_exact_mcnemar_test_rejects(only_a, only_b):
    a = np.r_[np.ones(only_a), np.zeros(only_b), np.ones(160)]
    b = np.r_[np.zeros(only_a), np.ones(only_b), np.ones(160)]
    got = stats.paired({0: a}, {0: b})
    p = scipy_stats.binomtest(only_a, only_a + only_b).pvalue
    assert (got.low > 0 or got.high < 0) == (p < 0.05)


def test_bleu_is_resampled_as_a_corpus_and_not_as_a_mean_over_rows():
    sacrebleu = pytest.importorskip("sacrebleu")
    hypotheses = ["the cat sat on the mat", "there is a dog", "a blue house by the sea"]
    references = ["the cat sat on a mat", "there is the dog here", "a blue house near the sea"]
    rows = statistics("bleu", hypotheses, [[reference] for reference in references])
    runs = [{"seed": 0, "stats": rows}, {"seed": 1, "stats": []}]  # a run that never finished is left out

    got = stats.interval(stats.by_seed(runs), stats.scorer("bleu"), resamples=200)

    corpus = sacrebleu.BLEU()
    draws = np.random.default_rng(0)
    draws.integers(1, size=(200, 1))  # the seeds are drawn before the rows
    drawn = draws.integers(3, size=(200, 3))
    scores = [corpus.corpus_score([hypotheses[i] for i in one], [[references[i] for i in one]]).score for one in drawn]
    assert got.value == pytest.approx(corpus.corpus_score(hypotheses, [references]).score, abs=1e-9)
    np.testing.assert_allclose([got.low, got.high], np.quantile(scores, [0.025, 0.975]), atol=1e-9)


def test_detectable_is_two_point_eight_standard_errors():
    error = 0.01
    got = stats.detectable(-1.959964 * error, 1.959964 * error)
    assert got == pytest.approx((1.959964 + 0.841621) * error, rel=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ({0: outcomes(0.5)}, {1: outcomes(0.5)}, r"no seed in common: \[0\] and \[1\]"),
        ({0: outcomes(0.5)}, {0: outcomes(0.5, rows=9)}, "scored 211 and 9 rows; give the same rows"),
        (
            {0: outcomes(0.5), 1: outcomes(0.5, rows=9)},
            {0: outcomes(0.5), 1: outcomes(0.5)},
            r"every seed must score the same rows, at least one; the seeds have \[9, 211\] rows",
        ),
    ],
)
def test_arms_that_cannot_be_paired_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        stats.paired(a, b)


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match="the seeds have \\[\\] rows"):
        stats.interval({})


@pytest.mark.parametrize("rows", [1, 2, 20, 150, 200])
def test_rows_that_are_all_alike_leave_open_what_the_rule_of_three_says(rows):
    doubt = 1 - 0.05 ** (1 / rows)
    perfect, none = {0: np.ones((rows, 1)), 1: np.ones((rows, 1))}, {0: np.zeros((rows, 1)), 1: np.zeros((rows, 1))}
    one, zero = stats.interval(perfect), stats.interval(none)
    np.testing.assert_allclose([one.low, one.high, zero.low, zero.high], [1 - doubt, 1, 0, doubt], atol=1e-12)
    level, apart = stats.paired(perfect, perfect), stats.paired(none, perfect)
    np.testing.assert_allclose([level.low, level.high], [-doubt, doubt], atol=1e-12)
    np.testing.assert_allclose([apart.low, apart.high], [-1 - doubt, -1 + doubt], atol=1e-12)
    bleu = stats.paired({0: np.ones((rows, 10))}, {0: np.ones((rows, 10))}, stats.scorer("bleu"))
    assert bleu.widened and (bleu.low, bleu.high) == pytest.approx((-100 * doubt, 100 * doubt))
