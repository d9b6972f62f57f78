"""Arms whose seeds scatter: what is told of them, and what the verdict makes of them; and what to run for an answer."""

import copy
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from made_results import LORA, PREFIX, RISING, ZERO, arm, results
from scipy import stats as scipy_stats

from tunescope.errors import UserError
from tunescope.report import terminal, view
from tunescope.report.verdict import advice, stability, stats, words
from tunescope.report.verdict.advice import wide
from tunescope.report.verdict.evidence import Pair
from tunescope.report.verdict.interim_looks import level, planned
from tunescope.report.verdict.verdict import decide
from tunescope.report.verdict.words import OLD_RULE
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check


def devs(*values):
    return [
        {"seed": seed, "id": f"run{seed}", "dev": dev, "test": {"accuracy": dev}} for seed, dev in enumerate(values)
    ]


def test_near_is_within_a_twentieth_of_the_scale_or_what_the_rows_leave_open():
    assert stability.near_best(devs(0.99, 0.95, 0.80), 1.0, 10_000) == [2, 3]
    assert stability.near_best(devs(0.99, 0.93, 0.80), 1.0, 10_000) == [1, 3]
    assert stability.near_best(devs(99.0, 95.0, 80.0), 100.0, 10_000) == [2, 3]
    assert stability.near_best(devs(0.85, 0.78, 0.60), 1.0, 200) == [2, 3]  # 2 * 1.414 * sqrt(.85 * .15 / 200) = .071
    assert stability.near_best(devs(0.85, 0.77, 0.60), 1.0, 200) == [1, 3]
    assert stability.near_best(devs(0.9), 1.0, 200) is None


def test_the_chosen_run_is_that_of_the_best_dev_score():
    assert stability.chosen(devs(0.8, 0.9, 0.9), "accuracy") == {"seed": 1, "id": "run1", "dev": 0.9, "test": 0.9}
    assert stability.chosen([], "accuracy") is None


def test_an_unstable_arm_is_remarked_on_and_a_steady_one_is_not():
    runs = devs(0.5, 0.9, 0.5)
    (said,) = stability.remark(stability.near_best(runs, 1.0, 1000), stability.chosen(runs, "accuracy"))
    assert said.startswith("Unstable: in 1 of 3 seeds it came near its best on dev. Seed 1, chosen on dev, has 0.9")
    assert stability.remark([3, 3], stability.chosen(runs, "accuracy")) == []


def made(name, group, rates, rows=600, seconds=60.0):
    """An arm whose seeds are right on these shares of the rows, the easy ones first."""
    g = np.random.default_rng(len(name))
    runs = []
    for seed, rate in enumerate(rates):
        order = (np.arange(rows) + 0.02 * rows * g.normal(size=rows)).argsort().argsort()
        right = (order < rate * rows).astype(float)
        runs.append(
            {"seed": seed, "id": f"{name}{seed}", "dev": rate, "test": {"accuracy": rate}, "curve": []}
            | {"stats": [[one, float(n % 2), 0.0] for n, one in enumerate(right)], "seconds": seconds}
        )
    return {"name": name, "group": group, "status": "done", "runs": runs, "score": float(np.mean(rates))}


def asked(*arms, **protocol):
    found = results() | {"comparisons": []}
    found["arms"] = [made("zero-shot", "none", [0.5]), *arms]
    found["data"]["dev"] = {"rows": 1000}
    found["protocol"] |= {"seeds": list(range(len(arms[-1]["runs"])))} | protocol
    return found


STEADY = made("lora", "delta", (0.90, 0.901, 0.899))


def test_a_context_that_was_found_once_suffices_though_its_mean_does_not():
    verdict = decide(asked(made("prefix", "context", (0.90, 0.55, 0.56)), STEADY))
    assert (verdict["answer"], verdict["reason"]) == ("context suffices", "unstable")
    assert (
        "prefix that suffices was found: seed 0 (RUN/arms/prefix0/artifact), chosen on dev, is not worse"
        in verdict["sentences"][0]
    )
    assert "On dev 1 of the 3 seeds came near the best" in verdict["sentences"][0]
    assert "on the test rows none of the 2 others passes as the chosen one does" in verdict["sentences"][0]
    assert "prefix is unstable: it came near its best dev score in 1 of 3 seeds" in verdict["sentences"][1]


def test_seeds_that_are_near_on_dev_alone_are_not_counted_as_runs_that_suffice():
    runs = made("prefix", "context", (0.90, 0.84, 0.55))
    runs["runs"][1]["dev"] = 0.88
    verdict = decide(asked(runs, STEADY))
    assert (verdict["reason"], verdict["evidence"]["suffice"]) == ("unstable", 1)
    assert verdict["evidence"]["context"]["near_best"] == (2, 3)
    assert (
        "On dev 2 of the 3 seeds came near the best, and on the test rows none of the 2 others passes"
        in (verdict["sentences"][0])
    )


def test_what_another_run_would_take_is_told_by_those_beside_the_chosen_one():
    """Of four seeds two suffice: one was chosen, and of the three others one passes."""
    verdict = decide(asked(made("prefix", "context", (0.90, 0.55, 0.90, 0.56)), made("lora", "delta", [0.9] * 4)))
    assert (verdict["reason"], verdict["evidence"]["suffice"]) == ("unstable", 2)
    assert "1 of the 3 others passes as the chosen one does: another takes 3.0 tries" in verdict["sentences"][0]
    assert "tries on average, about 180 s" in verdict["sentences"][0]


def test_one_that_dev_chose_and_test_does_not_bear_out_does_not_suffice():
    lucky = made("prefix", "context", (0.80, 0.55, 0.56))
    lucky["runs"][0]["dev"] = 0.95
    assert decide(asked(lucky, STEADY))["answer"] != "context suffices"


def test_a_run_that_dev_chose_suffices_by_its_interval_and_not_by_its_score_alone():
    few = [made("prefix", "context", (0.90, 0.55, 0.56), rows=60), made("lora", "delta", (0.9, 0.901, 0.899), rows=60)]
    given = asked(*few)
    given["arms"][0] = made("zero-shot", "none", [0.5], rows=60)
    found = decide(given)
    assert found["evidence"]["chosen_context"]["difference"] > -0.02 > found["evidence"]["chosen_context"]["low"]
    assert found["answer"] != "context suffices"


def test_a_steady_context_behind_is_weights_needed_whatever_its_best_seed():
    assert decide(asked(made("prefix", "context", (0.80, 0.79, 0.78)), STEADY))["answer"] == "weights needed"


def test_a_delta_whose_chosen_run_is_ahead_withdraws_a_mean_that_is_not():
    broken = made("lora", "delta", (0.99, 0.2, 0.3, 0.25, 0.3, 0.2))
    verdict = decide(asked(made("prefix", "context", (0.90, 0.901, 0.899, 0.9, 0.9, 0.9)), broken))
    assert (verdict["answer"], verdict["reason"]) == ("no verdict", "unstable delta")
    assert "lora came near its best in 1 of 6 seeds, and its seed 0, chosen on dev, is ahead" in verdict["sentences"][0]


BROKEN = (0.95, *[0.80] * 11)  # a mean of .8125


def test_a_delta_that_scatters_is_not_made_steadier_by_more_seeds():
    found = asked(made("prefix", "context", [0.84] * 12), made("lora", "delta", BROKEN))
    found["protocol"] |= {"steps": 100, "looks": {"planned": [3, 6, 12, 20], "at": 12}}
    verdict = decide(found)
    assert (verdict["reason"], verdict["more_seeds"]) == ("unstable delta", False)
    assert verdict["run"].startswith("More seeds do not make lora steadier; `--steps 200`, or a smaller learning rate")


def test_a_context_behind_in_the_mean_and_by_its_chosen_run_does_not_suffice_by_that_run():
    contexts = made("prefix", "context", (0.84, *[0.72] * 11), rows=4000)
    found = asked(contexts, made("lora", "delta", BROKEN, rows=4000))
    found["arms"][0] = made("zero-shot", "none", [0.5], rows=4000)
    verdict = decide(found)
    assert verdict["evidence"]["chosen_context"]["low"] > -0.02 > verdict["evidence"]["chosen_delta"]["high"]
    assert (verdict["answer"], verdict["reason"]) == ("weights needed", "context worse")


@pytest.mark.parametrize("group", ["text", "head"])
def test_what_trains_less_is_not_held_against_a_mean_that_hides_a_run_ahead_of_it(group):
    frozen = made("frozen", group, [0.83] * 12 if group == "head" else [0.83])
    steady = asked(made("prefix", "context", [0.6] * 12), made("lora", "delta", [0.81] * 12))
    broken = asked(made("prefix", "context", [0.6] * 12), made("lora", "delta", BROKEN))
    for found in (steady, broken):
        found["arms"].append(frozen)
    assert decide(steady)["reason"] == {"text": "prompt alone", "head": "head alone"}[group]
    assert decide(broken)["reason"] == "context worse"


def test_full_tuning_is_not_ahead_of_a_run_that_dev_chose_and_that_does_as_well():
    full = made("full", "full", [0.90] * 3)
    found = asked(made("prefix", "context", [0.6] * 3), made("lora", "delta", (0.80, 0.801, 0.799)), full)
    assert decide(found)["reason"] == "full tuning ahead"
    full = made("full", "full", [0.90] * 12)
    for best, reason in ((0.90, "context worse"), (0.80, "full tuning ahead")):
        lora = made("lora", "delta", (best, *[0.75] * 11))
        assert decide(asked(made("prefix", "context", [0.6] * 12), lora, full))["reason"] == reason


@pytest.mark.parametrize(
    ("prefix", "lora", "reason"),
    [
        ((0.5, 0.501, 0.499), (0.90, 0.52, 0.50), "wide interval"),
        ((0.90, 0.52, 0.50), (0.5, 0.501, 0.499), "unstable"),
        ((0.70, 0.52, 0.50), (0.5, 0.501, 0.499), "full tuning ahead"),
    ],
)
def test_what_full_tuning_shows_can_be_learnt_a_chosen_run_may_have_learnt(prefix, lora, reason):
    full = made("full", "full", [0.90] * 3)
    found = decide(asked(made("prefix", "context", prefix), made("lora", "delta", lora), full))
    assert found["reason"] == reason


def test_other_deltas_are_held_against_the_run_that_the_answer_rests_on():
    other = made("adapter", "delta", (0.85, 0.851, 0.849))
    for run in other["runs"]:
        run["dev"] = 0.89
    for chosen, told in ((0.90, False), (0.84, True)):
        prefix = made("prefix", "context", (chosen, 0.55, 0.56))
        prefix["runs"][0]["dev"] = 0.9
        steady = made("lora", "delta", [chosen, chosen - 0.001, chosen + 0.001])
        for run in steady["runs"]:
            run["dev"] = 0.9
        verdict = decide(asked(prefix, other, steady))
        assert verdict["reason"] == "unstable"
        pairs = verdict["evidence"]["chosen_untold"]
        assert [pair["arm"] for pair in pairs] == ["prefix, seed 0"] * told
        assert any("it is not shown that prefix, seed 0 is no worse" in one for one in verdict["sentences"]) == told


def test_scattered_seeds_of_which_one_learnt_are_no_sign_that_nothing_was_learnt():
    """Both means are not clear of chance, and both chosen runs are: it is the seeds that have to tell."""
    found = asked(made("prefix", "context", (0.90, 0.52, 0.89)), made("lora", "delta", (0.89, 0.51, 0.90)), looks=LOOKS)
    verdict = decide(found)
    assert not verdict["evidence"]["context"]["learnt"] and verdict["evidence"]["context"]["chosen_learnt"]
    assert (verdict["reason"], verdict["more_seeds"]) == ("wide interval", True)
    flat = asked(made("prefix", "context", (0.53, 0.50, 0.51)), made("lora", "delta", (0.5, 0.501, 0.499)))
    assert decide(flat)["reason"] == "nothing learnt"


def test_a_chosen_run_at_chance_is_no_context_that_suffices():
    """The delta is below chance: what is not worse than it need not be of any use."""
    found = asked(made("prefix", "context", (0.51, 0.41, 0.40)), made("lora", "delta", (0.43, 0.431, 0.429)))
    assert decide(found)["reason"] == "nothing learnt"
    found["arms"].append(made("mam", "both", (0.7, 0.7, 0.7)))
    assert decide(found)["reason"] == "learnt elsewhere"


def test_full_tuning_at_chance_is_not_ahead_of_what_is_below_it():
    full = made("full", "full", [0.5] * 3)
    found = asked(made("prefix", "context", [0.3] * 3), made("lora", "delta", [0.3] * 3), full)
    assert decide(found)["evidence"]["full_pairs"][0]["low"] > 0.02
    assert decide(found)["reason"] == "nothing learnt"


def test_the_model_untrained_is_no_sign_that_it_can_be_learnt():
    zero = made("zero-shot", "none", [0.60])
    prefix, lora = made("prefix", "context", (0.58, 0.60, 0.61)), made("lora", "delta", (0.57, 0.60, 0.61))
    found = asked(prefix, lora)
    found["arms"][0] = zero
    verdict = decide(found)
    assert verdict["evidence"]["able"] is None
    assert (verdict["answer"], verdict["reason"]) == ("no verdict", "nothing learnt")


def test_a_context_that_dev_passed_over_and_that_learnt_is_named_and_no_answer_is_given():
    prefix, soft = made("prefix", "context", (0.50, 0.85, 0.52)), made("soft", "context", (0.73, 0.74, 0.75))
    prefix["runs"] = [run | {"dev": 0.76} for run in prefix["runs"]]
    found = asked(prefix, soft, made("lora", "delta", (0.52, 0.53, 0.51)))
    verdict = decide(found)
    assert (verdict["answer"], verdict["reason"]) == ("no verdict", "passed over")
    assert verdict["sentences"][0].startswith("soft (0.740) is clearly above its floor, but dev did not choose it")
    assert "`tunescope resume RUN --max-seeds 6`" in verdict["run"]


def test_full_tuning_ahead_of_a_delta_alone_says_nothing_of_contexts():
    full, lora = made("full", "full", [0.90] * 3), made("lora", "delta", [0.80] * 3)
    lost = {"name": "prefix", "group": "context", "status": "diverged", "runs": []}
    verdict = decide(asked(lost, lora, full))
    assert (verdict["answer"], verdict["reason"]) == ("no verdict", "missing arms")
    assert verdict["sentences"][0].startswith("No context arm finished (prefix, a context: diverged)")


def test_another_delta_as_good_on_dev_that_a_context_is_not_held_against_is_told():
    other = made("adapter", "delta", (0.90, 0.80, 0.85))
    for run, dev in zip(other["runs"], (0.89, 0.89, 0.89), strict=True):
        run["dev"] = dev
    prefix = made("prefix", "context", (0.90, 0.899, 0.901))
    verdict = decide(asked(prefix, other, STEADY))
    assert verdict["answer"] in ("context suffices", "alike")
    (pair,) = verdict["evidence"]["untold"]
    assert pair["other"] == "adapter"
    assert pair["low"] <= -0.02 <= pair["high"]
    assert (
        "hardly tell lora from other deltas, and it is not shown that prefix is no worse than these: adapter, "
        in (verdict["sentences"][1])
    )
    for run in other["runs"]:
        run["dev"] = 0.7
    assert not decide(asked(prefix, other, STEADY))["evidence"]["untold"]


LOOKS = {"planned": [3, 6, 12], "at": 3, "deciding": ["prefix", "lora"]}


def scattered(*rates):
    return asked(made("prefix", "context", rates), made("lora", "delta", [0.90] * len(rates)))


def test_seeds_that_bind_are_asked_for_with_their_time():
    found = scattered(0.88, 0.90, 0.915)
    verdict = decide(found)
    assert (verdict["answer"], verdict["reason"]) == ("no verdict", "wide interval")
    said = re.fullmatch(r"(\d+) more seeds \(about (\d+) min\) would decide .*--max-seeds (\d+)`\.", verdict["run"])
    more, minutes, most = map(int, said.groups())
    assert most == more + 3
    assert minutes == 2 * more  # 60 s a run, of two arms
    assert verdict["more_seeds"] is False  # no more looks were planned


def test_seeds_that_draw_their_own_rows_are_asked_for_in_a_run_that_has_them_from_its_begin():
    found = scattered(0.88, 0.90, 0.915)
    added = int(re.search(r"`tunescope resume RUN --max-seeds (\d+)`", decide(found)["run"])[1])
    found["protocol"]["k_shot"] = 16
    begun = int(re.search(r"`tunescope compare \.\.\. --seeds (\d+)`", decide(found)["run"])[1])
    assert begun < added  # it looks once, and each of the looks of a run that goes on has a wider interval
    with pytest.raises(UserError, match=r"with --k-shot every seed draws its rows at first: .* more --seeds"):
        check(Plan(model="m", data={"train": "a.jsonl", "test": "b.jsonl"}, k_shot=16, max_seeds=12))


def test_where_only_a_new_run_would_decide_its_seeds_are_those_of_one_look():
    found = scattered(0.842, 0.862, 0.887)
    once = re.match(r"(\d+) seeds in a new run that looks once would decide", decide(found)["run"])
    found["protocol"]["k_shot"] = 16  # a run that can look once only
    assert decide(found)["run"].endswith(f"`tunescope compare ... --seeds {once[1]}`.")


def test_the_loop_goes_on_while_looks_are_left_and_stops_at_the_last():
    found = scattered(0.88, 0.90, 0.915)
    found["protocol"]["looks"] = LOOKS
    assert decide(found)["more_seeds"] is True
    assert "98.33% interval" in decide(found)["sentences"][0]
    found["protocol"]["looks"] = {**LOOKS, "planned": [3]}
    assert decide(found)["more_seeds"] is False
    decided = asked(made("prefix", "context", (0.80, 0.79, 0.78)), STEADY, looks=LOOKS)
    assert decide(decided)["more_seeds"] is False


def test_the_deciding_arms_stay_those_of_the_first_look():
    found = asked(made("soft", "context", (0.95, 0.95, 0.95)), made("prefix", "context", (0.80, 0.79, 0.78)), STEADY)
    assert decide(found)["evidence"]["context"]["name"] == "soft"
    found["protocol"]["looks"] = LOOKS
    assert decide(found)["evidence"]["context"]["name"] == "prefix"


def test_a_difference_of_fewer_seeds_than_an_arm_has_says_so():
    """Two had six seeds, and the context failed at the later ones; the third arm has the first three."""
    prefix, lora = (0.90, 0.90, 0.90, 0.60, 0.60, 0.60), made("lora", "delta", [0.91] * 6)
    third = made("adapter", "delta", [0.95] * 3)
    third["runs"] = [run | {"dev": 0.8} for run in third["runs"]]
    found = asked(made("prefix", "context", prefix), lora, third)
    found["comparisons"] = []
    pairs = {pair["other"]: pair["told"] for pair in decide(found)["evidence"]["ahead"]}
    assert re.match(r"over the 3 seeds that both have, the difference is -0\.05\d ", pairs["adapter"])
    assert decide(found)["evidence"]["pair"]["told"].startswith("the difference is -0.16")


def test_as_many_seeds_as_are_asked_for_decide_four_times_in_five():
    found = results(ZERO, PREFIX, LORA, gaps=[("prefix", "lora", -0.05, 0.05)])
    gap = next(one for one in found["comparisons"] if {one["a"], one["b"]} == {"prefix", "lora"})
    gap |= {"parts": {"seeds": 0.0002, "rows": 0.0, "both": 0.0}, "seeds": 3, "freedom": 2.0}
    most = int(re.search(r"--max-seeds (\d+)", decide(found)["run"])[1])
    deviation = (3 * 0.0002) ** 0.5
    draws = deviation * np.random.default_rng(0).normal(size=(20_000, most))
    sure = level(planned(3, most))
    assert sure > 0.98  # of 3, 6, 12 and so many
    halves = scipy_stats.t.ppf(0.5 + sure / 2, most - 1) * draws.std(1, ddof=1) / most**0.5
    assert 0.79 <= (draws.mean(1) - halves > -0.02).mean() <= 0.84


def test_as_many_rows_as_are_asked_for_decide_four_times_in_five_where_seeds_agree():
    """Of 400 rows 15 % differ, half to each side, and every seed answers alike: what scatters is the rows alone."""
    variance = 0.15 / 400
    half = scipy_stats.t.ppf(0.975, 399) * variance**0.5
    pair = Pair("a", "b", 0.0, -half, half, 0.95, "", 3, 399.0, {"seeds": 0.0, "rows": variance, "both": 0.0})
    evidence = SimpleNamespace(margin=0.02, rows=400, number=str)
    arm = SimpleNamespace(seconds=None)
    asked_for = int(re.search(r"about ([\d,]+) of them", wide(evidence, {}, pair, (arm, arm)).text)[1].replace(",", ""))
    needed = 0.15 * ((1.95996 + 0.84162) / 0.02) ** 2
    assert needed <= asked_for <= 1.06 * needed  # one step of the numbers that are asked for
    more, _, fewer = np.random.default_rng(0).multinomial(asked_for, [0.075, 0.85, 0.075], 20_000).T
    means = (more - fewer) / asked_for
    errors = np.sqrt(((more + fewer) / asked_for - means**2) / (asked_for - 1))
    low = means - scipy_stats.t.ppf(0.975, asked_for - 1) * errors
    assert 0.79 <= (low > -0.02).mean() <= 0.84


def test_advice_for_the_present_size_has_the_freedom_that_the_interval_has():
    g = np.random.default_rng(0)
    table = g.normal(size=100) + 0.3 * g.normal(size=(4, 1)) + 0.5 * g.normal(size=(4, 100))
    found = stats.paired(dict(enumerate(table)), dict(enumerate(np.zeros((4, 100)))), level=0.95)
    assert min(found.parts.values()) > 0 and 3 < found.freedom < 50
    assert math.isclose(advice._freedom(found.parts, 4, 100), found.freedom, rel_tol=1e-9)


def test_rows_that_bind_are_asked_for_and_no_more_seeds_are_run():
    few = [made(*one, rows=40) for one in (("prefix", "context", [0.85] * 3), ("lora", "delta", [0.9] * 3))]
    found = asked(*few, looks=LOOKS)
    found["arms"][0] = made("zero-shot", "none", [0.5], rows=40)
    verdict = decide(found)
    assert verdict["reason"] == "wide interval"
    assert "there are too few test rows: about" in verdict["run"] and "(now 40)" in verdict["run"]


def test_longer_runs_and_larger_rates_are_asked_for_where_nothing_was_learnt():
    low = [arm("zero-shot", "none", 0.5), arm("prefix", "context", 0.5), arm("lora", "delta", 0.5)]
    trials = [{"learning_rate": rate} for rate in (0.1, 0.2, 0.3)]
    low[1] |= {"trials": trials, "learning_rate": 0.3}
    run = decide(results(*low))["run"]
    assert "`--steps 800`" in run and "`--beyond 2`" in run
    assert "the best learning rate of prefix was the last tried" in run
    found = results(*low)
    found["protocol"]["trials_per_arm"] = 1  # where --beyond is refused
    assert re.fullmatch(r"Run it again .*--steps 800`, and more learning rates .*`--trials`.*", decide(found)["run"])
    with pytest.raises(UserError, match="--beyond has no effect on one learning rate"):
        check(Plan(model="m", data={"train": "a.jsonl"}, trials=1, beyond=2))
    rising = decide(results(ZERO, arm("prefix", "context", 0.80, curve=RISING), LORA))
    assert "`--steps 800`" in rising["run"]


def test_a_verdict_of_the_earlier_rule_is_shown_and_marked():
    found = results(ZERO, PREFIX, LORA)
    found |= {"verdict": {"answer": "context suffices", "sentences": ["It does."]}}
    assert OLD_RULE not in terminal.verdict(found)
    old = copy.deepcopy(found)
    del old["protocol"]["looks"]
    assert terminal.verdict(old) == f"Verdict: context suffices.\nIt does.\n{OLD_RULE}"
    assert view.view(old).sentences == ["It does.", OLD_RULE]
    assert view.view(found).sentences == ["It does."]


def test_the_best_on_dev_is_told_where_it_does_not_beat_the_untrained_model():
    for score, said in ((0.50, "Nothing beats the untrained model."), (0.53, "")):
        found = results(ZERO, arm("prefix", "context", score)) | {"best": {"arm": "prefix", "path": "best"}}
        assert view.view(found).beaten == said
        assert ("Nothing beats the untrained model" in terminal.table(found)) == bool(said)
    others = [ZERO, arm("prefix", "context", 0.50), arm("lora", "delta", 0.6)]
    found = results(*others) | {"best": {"arm": "prefix", "path": "best"}}
    assert view.view(found).beaten == "The arm that is best on dev does not beat the untrained model on test."
    assert view.view(found | {"best": {"arm": ZERO["name"], "path": None}}).beaten == ""
    first, second = (f"text:text={'so it begins, and ' * 6}{end}" for end in ("badly", "well"))  # shown alike
    found = results(ZERO, arm(first, "context", 0.50), arm(second, "context", 0.6)) | {"best": {"arm": first}}
    assert view.view(found).beaten == "The arm that is best on dev does not beat the untrained model on test."


@pytest.mark.parametrize(("protocol", "said"), [({"budget": None}, "these sizes"), ({"budget": 9}, "one budget")])
def test_no_budget_is_told_where_none_was_given(protocol, said):
    found = results(ZERO, PREFIX, LORA)
    found["protocol"] |= protocol
    assert view.view(found).limits[0].startswith(f"One model, one set of data, {said}, these learning rates.")


def test_sizes_are_those_of_the_arms_that_finished():
    sized = [arm(name, "context", 0.5) | {"parameters": {"stored": size}} for name, size in (("a", 640), ("b", 1024))]
    lost = arm("c", "delta", status="diverged") | {"parameters": {"stored": 90_000}}
    assert words.own_sizes([*sized, lost]) == "the sizes given"
    assert "640 (a) to 90,000 (c)" in words.own_sizes([*sized, lost | {"status": "done"}])
    unsized = arm("d", "delta", 0.5) | {"parameters": None}  # results of an earlier version
    assert words.own_sizes([*sized, unsized]) == "the sizes given"
    assert words.within([1024], [*sized, unsized]) == "at most 1,024 stored parameters (from 640 to 1,024)"


@pytest.mark.parametrize("name", ["soft", "prefix"])
def test_the_results_own_fields_are_read(name):
    found = asked(made(name, "context", (0.9, 0.9, 0.9)), STEADY)
    found["arms"][1] |= {"near_best": [1, 3], "chosen": {"seed": 2, "id": "x", "dev": 0.9, "test": 0.9}}
    evidence = decide(found)["evidence"]["context"]
    assert (evidence["near_best"], evidence["chosen"]["seed"]) == ((1, 3), 2)


@pytest.mark.parametrize(
    ("seeds", "rows", "told"),
    [
        (1e-4, 0.0, r"\d+ more seeds .*"),
        (0.0, 1e-4, r"More seeds alone do not decide it.*"),
        (1e-4, 1e-4, r"Neither more seeds nor .* alone decide it: (\d+) seeds and about ([\d,]+) test rows .*"),
        (1e-1, 1e-1, r"The difference seen is 0\.020 away from -0\.020, too little for 200 seeds on 200 times .*"),
    ],
)
def test_what_binds_is_asked_for_seeds_rows_or_both(seeds, rows, told):
    """Of a pair at 0 with three seeds on 500 rows, whose variance these are parts of."""
    pair = Pair("a", "b", 0.0, -1, 1, 0.95, "", 3, 2.0, {"seeds": seeds, "rows": rows, "both": 0.0})
    arm = SimpleNamespace(seconds=None)
    evidence = SimpleNamespace(margin=0.02, rows=500, number=lambda value: f"{value:.3f}")
    said = re.fullmatch(told, wide(evidence, {}, pair, (arm, arm)).text)
    assert said
    if said.groups():
        more, given = int(said[1]), int(said[2].replace(",", ""))
        left = seeds * 3 / more, rows * 500 / given
        freedom = sum(left) ** 2 / (left[0] ** 2 / (more - 1) + left[1] ** 2 / (given - 1))
        reach = scipy_stats.t.ppf(0.975, freedom) + scipy_stats.norm.ppf(0.8)
        assert reach * math.sqrt(sum(left)) <= 0.02
        assert more > 3 and given > 500
