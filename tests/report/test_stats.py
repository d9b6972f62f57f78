"""Oracles: scipy's intervals, a literal loop, draws, sacrebleu, arithmetic by hand and the exact McNemar test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tunescope.data.scores import statistics
from tunescope.report.verdict import stats, variance


def outcomes(rate, rows=211, seed=0):
    return np.random.default_rng(seed).binomial(1, rate, size=(rows, 1)).astype(float)


def test_with_one_seed_the_interval_of_a_share_is_scipys_wilson():
    rows = outcomes(0.9)
    got = stats.interval({0: rows})
    oracle = scipy_stats.binomtest(int(rows.sum()), 211).proportion_ci(method="wilson")
    assert got.value == pytest.approx(rows.mean(), abs=1e-15)
    assert got.over == "rows only"
    np.testing.assert_allclose([got.low, got.high], [oracle.low, oracle.high], atol=2e-3)  # t and n - 1, not z and n


def test_with_one_seed_the_paired_interval_is_students_with_a_row_more():
    a, b = outcomes(0.8), outcomes(0.7, seed=5)
    got = stats.paired({3: a}, {3: b})
    oracle = scipy_stats.ttest_rel(a[:, 0], b[:, 0]).confidence_interval()
    farthest = np.abs(a - b - (a - b).mean()).max()
    wider = np.sqrt(1 + farthest**2 / ((a - b - (a - b).mean()) ** 2).sum())
    assert got.value == pytest.approx(a.mean() - b.mean(), abs=1e-15)
    middle, half = (oracle.low + oracle.high) / 2, wider * (oracle.high - oracle.low) / 2
    np.testing.assert_allclose([got.low, got.high], [middle - half, middle + half], rtol=0, atol=1e-12)
    assert 1 < wider < 1.02


def test_mean_squares_are_those_of_a_literal_table():
    table = np.random.default_rng(0).normal(size=(3, 13))
    mean = sum(table[s, r] for s in range(3) for r in range(13)) / 39
    seed = [sum(table[s, r] for r in range(13)) / 13 for s in range(3)]
    row = [sum(table[s, r] for s in range(3)) / 3 for r in range(13)]
    of_seeds = 13 * sum((one - mean) ** 2 for one in seed) / 2
    of_rows = 3 * sum((one - mean) ** 2 for one in row) / 12
    of_both = sum((table[s, r] - seed[s] - row[r] + mean) ** 2 for s in range(3) for r in range(13)) / 24
    got = variance.scatter(table)
    np.testing.assert_allclose([got.of_seeds, got.of_rows, got.of_both], [of_seeds, of_rows, of_both], rtol=1e-12)
    assert got.variance == pytest.approx(max(of_seeds + of_rows - of_both, of_seeds, of_rows) / 39)
    assert sum(got.parts.values()) == pytest.approx(got.variance)


def test_the_variance_is_that_of_the_mean_of_many_tables():
    g = np.random.default_rng(0)
    shape = (4000, 4, 30)
    tables = 0.3 * g.normal(size=(*shape[:2], 1)) + g.normal(size=(shape[0], 1, shape[2])) + g.normal(size=shape)
    told = np.mean([variance.scatter(table).variance for table in tables])
    assert told == pytest.approx(tables.mean((1, 2)).var(), rel=0.06)


def test_pure_seed_noise_leaves_students_interval_of_the_seeds():
    scores = np.array([0.5, 0.7, 0.9, 0.6])
    a = {seed: np.full((11, 1), score) for seed, score in enumerate(scores)}  # no noise between rows
    b = {seed: np.full((11, 1), 0.4) for seed in a}
    got = stats.paired(a, b)
    oracle = scipy_stats.t.interval(0.95, 3, (scores - 0.4).mean(), scipy_stats.sem(scores))
    np.testing.assert_allclose([got.low, got.high], oracle, rtol=0, atol=1e-9)
    assert (got.freedom, got.seeds, got.rows) == (pytest.approx(3), 4, 11)
    assert got.parts == {"seeds": pytest.approx(got.error**2), "rows": pytest.approx(0), "both": pytest.approx(0)}


def test_a_pool_of_steady_arms_does_not_hide_one_that_scatters():
    a = {seed: np.full((11, 1), score) for seed, score in enumerate((0.5, 0.7, 0.9))}
    b = {seed: np.full((11, 1), 0.4) for seed in a}
    steady = variance.Pool(0.001, 10)
    assert stats.paired(a, b, pool=steady) == stats.paired(a, b)


def test_few_seeds_that_happen_to_agree_are_held_to_the_pool():
    a = {seed: np.full((11, 1), 0.8 + 0.001 * seed) for seed in range(3)}
    b = {seed: np.full((11, 1), 0.5 - 0.001 * seed) for seed in range(3)}
    got = stats.paired(a, b, pool=variance.Pool(0.0009, 8))
    own = np.var([0.3, 0.302, 0.304], ddof=1)
    half = scipy_stats.t.ppf(0.975, 4 + 2) * np.sqrt((4 * 2 * 0.0009 + 2 * own) / 6 / 3)
    assert (got.high - got.low) / 2 == pytest.approx(half, rel=1e-6)
    alone = stats.paired(a, dict.fromkeys(a, b[0]), pool=variance.Pool(0.0009, 8))  # of one arm the seeds agree anyway
    half = scipy_stats.t.ppf(0.975, 6) * np.sqrt((4 * 0.0009 + 2 * np.var([0, 0.001, 0.002], ddof=1)) / 6 / 3)
    assert (alone.high - alone.low) / 2 == pytest.approx(half, rel=1e-6)


def test_a_pool_is_the_median_of_its_arms_without_the_bias_of_few_seeds():
    scores = [np.array([0.5, 0.6, 0.9]), np.array([0.5, 0.52, 0.51]), np.array([0.5, 0.5, 0.53])]
    variances = [one.var(ddof=1) for one in scores]
    got = variance.pooled(scores)
    assert got.variance == pytest.approx(np.median(variances) / (scipy_stats.chi2.median(2) / 2))
    assert got.freedom == pytest.approx(2 * (sum(variances) ** 2 / sum(v**2 for v in variances) - 1))
    assert got.freedom < 0.1  # one arm scatters far more than the others: there is hardly a pool
    assert variance.pooled([np.array([0.5]), np.array([0.7])]) is None
    assert variance.pooled([np.array([0.5, 0.5])]) is None


@pytest.mark.parametrize("deviations", [(1, 1), (5, 0.1), (1, 1, 1, 1), (5, 1, 1, 1), (5, 5, 1, 1), (1, 1, 5, 5)])
def test_three_seeds_cover_whatever_arm_it_is_that_scatters(deviations):
    g = np.random.default_rng(0)
    held = 0
    for _ in range(3000):
        arms = [0.004 * one * g.normal(size=3) for one in deviations]
        table = (arms[0] - arms[1])[:, None] + np.zeros((1, 5))
        pool = variance.pooled(arms)
        pair = variance.Pool(2 * pool.variance, pool.freedom)
        held += abs(table.mean()) <= variance.scatter(table).beside(pair).half(0.95)
    assert held / 3000 >= 0.93


def test_an_interval_stays_within_the_metrics_range():
    wild = {0: np.zeros((20, 1)), 1: np.ones((20, 1)), 2: np.ones((20, 1))}
    for got in (stats.paired(wild, dict.fromkeys(wild, np.zeros((20, 1)))), stats.interval(wild)):
        assert -1 <= got.low < got.high <= 1
    near = stats.interval({seed: outcomes(0.98, seed=seed) for seed in range(3)})
    assert 0.9 < near.low < near.value < near.high < 1


def test_a_metric_without_an_upper_end_has_students_interval_beyond_its_usual_best():
    rng = np.random.default_rng(0)
    edits = np.column_stack([rng.poisson(14, 40), np.full(40, 10)]).astype(float)  # TER around 140
    got = stats.interval({0: edits}, stats.scorer("ter"))
    error = edits[:, 0].std(ddof=1) * 10 / 40**0.5
    half = scipy_stats.t.ppf(0.975, 39) * error
    assert got.value == pytest.approx(10 * edits[:, 0].mean()) and got.value > 100
    np.testing.assert_allclose([got.low, got.high], [got.value - half, got.value + half], rtol=1e-9)
    few = np.column_stack([np.repeat([0.0, 3.0], [38, 2]), np.full(40, 10)])
    assert stats.interval({0: few}, stats.scorer("ter")).low == 0.0  # an error rate is none below that
    none = np.column_stack([np.zeros(40), np.full(40, 10)])
    apart = stats.paired({0: 20 * edits}, {0: none}, stats.scorer("ter"))
    assert apart.high - apart.value == pytest.approx(apart.value - apart.low) and apart.high > apart.value


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


def test_a_ratio_of_sums_is_scored_on_the_sums_and_not_row_by_row():
    def ratio(sums, counts):
        return sums[:, 0] / sums[:, 1]

    rows = np.array([[1.0, 1.0], [0.0, 3.0]])
    assert stats.interval({0: rows}, ratio).value == 0.25  # the mean of the rows' ratios would be 0.5


@pytest.mark.parametrize(("only_a", "only_b"), [(30, 5), (12, 12), (40, 38), (2, 25)])
def test_the_interval_excludes_zero_where_the_exact_mcnemar_test_rejects(only_a, only_b):
    a = np.r_[np.ones(only_a), np.zeros(only_b), np.ones(160)]
    b = np.r_[np.zeros(only_a), np.ones(only_b), np.ones(160)]
    got = stats.paired({0: a}, {0: b})
    p = scipy_stats.binomtest(only_a, only_a + only_b).pvalue
    assert (got.low > 0 or got.high < 0) == (p < 0.05)


def test_bleus_error_is_sacrebleus_jackknife():
    sacrebleu = pytest.importorskip("sacrebleu")
    hypotheses = ["the cat sat on the mat", "there is a dog in the house", "a blue house by the sea", "it is so"]
    references = ["the cat sat on a mat", "there is the dog in the house", "a blue house near the sea", "it is not so"]
    rows = statistics("bleu", hypotheses, [[reference] for reference in references])
    runs = [{"seed": 0, "stats": rows}, {"seed": 1, "stats": []}]  # a run that never finished is left out
    got = stats.interval(stats.by_seed(runs), stats.scorer("bleu"))

    corpus = sacrebleu.BLEU()
    others = [[i for i in range(4) if i != j] for j in range(4)]
    without = [
        corpus.corpus_score([hypotheses[i] for i in some], [[references[i] for i in some]]).score for some in others
    ]
    assert got.value == pytest.approx(corpus.corpus_score(hypotheses, [references]).score, abs=1e-9)
    assert got.error**2 == pytest.approx(3 / 4 * ((without - np.mean(without)) ** 2).sum(), rel=1e-9)
    assert got.freedom == pytest.approx(3)


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
    np.testing.assert_allclose([apart.low, apart.high], [-1, -1 + doubt], atol=1e-12)
    bleu = stats.paired({0: np.ones((rows, 10))}, {0: np.ones((rows, 10))}, stats.scorer("bleu"))
    assert bleu.widened and (bleu.low, bleu.high) == pytest.approx((-100 * doubt, 100 * doubt))


def test_one_row_and_one_input_leave_nearly_all_open_though_seeds_scatter():
    ours = {seed: np.full((20, 1), score) for seed, score in enumerate((0.50, 0.51, 0.505))}
    theirs = {seed: np.full((20, 1), score) for seed, score in enumerate((0.30, 0.312, 0.305))}
    found = stats.paired(ours, theirs, inputs=[0] * 20)
    assert (found.rows, found.widened) == (1, True)
    assert found.high - found.value == pytest.approx(min(0.95, 1 - found.value))  # 1 - .05^(1/1), up to the end
    assert stats.interval(ours, inputs=[0] * 20).low == 0.0


def test_rows_of_one_input_are_one_draw_however_often_they_are_repeated():
    draw = np.random.default_rng(3)
    ours, theirs = (dict.fromkeys(range(3), draw.integers(0, 2, (60, 1))) for _ in range(2))
    numbers = np.repeat(np.arange(60), 5)
    often, others = ({seed: np.repeat(rows, 5, 0) for seed, rows in one.items()} for one in (ours, theirs))
    once, five = stats.paired(ours, theirs), stats.paired(often, others, inputs=list(numbers))
    assert (five.low, five.high, five.rows) == (pytest.approx(once.low), pytest.approx(once.high), 60)
    naive = stats.paired(often, others)
    assert naive.high - naive.low < 0.7 * (once.high - once.low)  # what five copies of every row would claim
    alone = stats.interval(often, inputs=list(numbers))
    assert (alone.low, alone.high) == pytest.approx((stats.interval(ours).low, stats.interval(ours).high))


def test_inputs_of_unequal_numbers_of_rows_by_the_cluster_formula():
    """One seed: the variance of a mean over clusters, G / (G - 1) * sum of squared cluster totals / N^2."""
    draw = np.random.default_rng(4)
    sizes = draw.integers(1, 6, 40)
    numbers = np.repeat(np.arange(40), sizes)
    rows = (draw.random(40)[numbers] + 0.2 * draw.random(len(numbers)))[None]
    found = stats.by_input(rows, list(numbers))
    totals = np.bincount(numbers, rows[0] - rows.mean())
    expected = 40 / 39 * (totals**2).sum() / len(numbers) ** 2
    assert found.mean() == pytest.approx(rows.mean())
    assert found.var(ddof=1) / 40 == pytest.approx(expected)


def test_rows_that_were_joined_before_they_were_scored_stay_as_they_are():
    rows = np.arange(6.0).reshape(2, 3)
    assert stats.by_input(rows, [0, 0, 1, 2]) is rows
    assert stats.by_input(rows, None) is rows


def test_what_is_detectable_by_few_degrees_of_freedom_is_by_students_t():
    reach = scipy_stats.t.ppf(0.975, 2)
    got = stats.detectable(-reach * 0.01, reach * 0.01, freedom=2)
    assert got == pytest.approx((reach + scipy_stats.norm.ppf(0.8)) * 0.01, rel=1e-9)


def test_a_stray_answer_leaves_open_no_less_than_none():
    """One answer of 300 against `a`: that none of the rows differs at most seeds is as little known as before."""
    rows, doubt = 100, 1 - 0.05 ** (1 / 100)
    right = {seed: (np.arange(rows) % 10 < 7).astype(float)[:, None] for seed in range(3)}
    stray = {seed: values.copy() for seed, values in right.items()}
    stray[1][3] = 0
    none, one = stats.paired(right, right), stats.paired(stray, right)
    np.testing.assert_allclose([none.low, none.high], [-doubt, doubt], atol=1e-12)
    np.testing.assert_allclose([one.low, one.high], [one.value - doubt, one.value + doubt], atol=1e-12)
    assert none.widened and one.widened
    same = {seed: values.copy() for seed, values in right.items()}
    for seed in range(2):
        same[seed][3] = 0  # at two of three seeds: such a row was seen
    assert not stats.paired(same, right).widened
    texts = {seed: values * 0.4 for seed, values in right.items()}
    nearly = {seed: values * 0.4 + 0.01 * (np.arange(rows) % 3)[:, None] for seed, values in right.items()}
    assert not stats.paired(nearly, texts).widened  # scores between right and wrong scatter of themselves


@pytest.mark.parametrize("seeds", [3, 12])
def test_a_loss_beyond_the_margin_on_rows_that_few_have_is_seldom_called_none(seeds):
    """The rows that one arm alone gets wrong are 2.2 of 100, and a few answers of each arm are turned."""
    draw, wrong, held, draws = np.random.default_rng(0), 0, 0, 400
    for _ in range(draws):
        easy = draw.random(100) < 0.7
        hard = draw.random(100) < 0.022 / 0.7
        made = [
            {
                seed: ((easy & ~(hard & lost)) ^ (draw.random(100) < 0.003)).astype(float)[:, None]
                for seed in range(seeds)
            }
            for lost in (True, False)
        ]
        found = stats.paired(*made, pool=stats.pool_of(made))
        wrong += found.low > -0.02
        held += found.low <= -0.022 * 0.994 <= found.high
    assert wrong <= 0.04 * draws  # it was .07 of three seeds and .10 of twelve
    assert held >= 0.95 * draws
