"""Every outcome of the rule, on results made by hand; differences and intervals are stated, not computed."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from made_results import LORA, PREFIX, RISING, SHOTS, ZERO, arm, results
from scipy import stats as scipy_stats

from tunescope.report.verdict import advice, reader, stats
from tunescope.report.verdict.verdict import decide
from tunescope.tasks.prompts.chain import NAME


def outcome(*args, **kwargs):
    verdict = decide(results(*args, **kwargs))
    assert all(s.endswith(".") and len(s) < 420 for s in verdict["sentences"])
    json.loads(json.dumps(verdict, allow_nan=False))  # it goes into results.json
    assert (verdict["run"] is not None) == (verdict["answer"] == "no verdict")  # which always says what to run
    assert verdict["forecast"] is None  # only a pilot has one
    sentences = [one for one in verdict["sentences"] if one != verdict["run"]]
    assert len(sentences) == 3
    assert verdict["reason"] == verdict["evidence"]["reason"]
    return verdict["answer"], verdict["reason"], sentences


def test_a_tie_above_the_floor_is_alike():
    answer, reason, sentences = outcome(ZERO, SHOTS, PREFIX, LORA)
    assert (answer, reason) == ("alike", "alike")
    assert "prefix (0.900) and lora (0.900) are alike: a context suffices, and weights do as well" in sentences[0]
    assert "95% interval -0.015 to 0.015" in sentences[0]


@pytest.mark.parametrize(("high", "answer"), [(0.0201, "context suffices"), (0.0199, "alike")])
def test_alike_is_within_the_margin_on_both_sides(high, answer):
    found, _, sentences = outcome(ZERO, PREFIX, LORA, gaps=[("prefix", "lora", -0.01, high)])
    assert found == answer
    told = "prefix (0.900) is not worse than lora (0.900) by more than 0.020"
    assert (told in sentences[0]) == (answer == "context suffices")


def test_that_one_of_the_two_alone_writes_steps_is_told_and_their_losses_are_not_compared():
    gaps = [("prefix", "lora", -0.2, -0.1)]
    assert reader.COT == NAME
    behind = arm("prefix", "context", 0.80)
    taught = LORA | {"spec": "demos:k=2+cot+lora:rank=2"}
    told = decide(results(ZERO, behind, taught, gaps=gaps))
    assert "Of the two lora alone writes steps, which may be the difference." in told["sentences"][-1]
    in_a_text = LORA | {"spec": r"text:text=film\+cot+lora:rank=2"}
    for pair in ((behind, LORA), (behind, in_a_text), (behind | {"spec": "cot+prefix"}, taught)):
        assert "writes steps" not in " ".join(decide(results(ZERO, *pair, gaps=gaps))["sentences"])


def test_the_margin_is_the_protocols_where_it_has_one():
    wide = results(ZERO, PREFIX, LORA, gaps=[("prefix", "lora", -0.04, 0.04)])
    assert decide(wide)["answer"] == "no verdict"
    wide["protocol"]["margin"] = 0.05
    assert decide(wide)["answer"] == "alike"
    assert decide(wide, margin=0.03)["answer"] == "no verdict"


def test_another_delta_that_is_ahead_of_a_context_that_suffices_is_told():
    other = arm("adapter", "delta", 0.93, dev=0.5)
    gaps = [("prefix", "lora", -0.01, 0.01), ("prefix", "adapter", -0.05, -0.001)]
    told = decide(results(ZERO, PREFIX, LORA, other, gaps=gaps))
    assert told["answer"] == "alike" and "lora is the delta with the best dev score" in told["sentences"][1]
    assert told["sentences"][1].endswith(
        "behind another: adapter, the difference is -0.030 (95% interval -0.050 to -0.001)."
    )
    gaps[1] = ("prefix", "adapter", -0.05, 0.001)
    assert len(outcome(ZERO, PREFIX, LORA, other, gaps=gaps)[2]) == 3
    needed = decide(results(ZERO, arm("prefix", "context", 0.80), LORA, other))
    assert not any("behind another" in one for one in needed["sentences"])


def test_a_context_far_ahead_is_context_suffices():
    assert outcome(ZERO, PREFIX, arm("lora", "delta", 0.70))[0] == "context suffices"


def test_a_gap_that_is_all_beyond_the_margin_is_weights_needed():
    answer, reason, sentences = outcome(ZERO, arm("prefix", "context", 0.80), LORA)
    assert (answer, reason) == ("weights needed", "context worse")
    assert "prefix (0.800) stays more than 0.020 behind lora (0.900)" in sentences[0]


def test_a_gap_whose_interval_reaches_the_margin_is_not_weights_needed():
    arms = [ZERO, arm("prefix", "context", 0.85), LORA]
    assert outcome(*arms, gaps=[("prefix", "lora", -0.081, -0.019)])[:2] == ("no verdict", "wide interval")
    assert outcome(*arms, gaps=[("prefix", "lora", -0.079, -0.021)])[0] == "weights needed"


def test_a_delta_ahead_that_is_not_itself_above_its_floor_proves_nothing():
    answer, reason, sentences = outcome(ZERO, arm("prefix", "context", 0.80), arm("lora", "delta", 0.90, half=0.45))
    assert (answer, reason) == ("no verdict", "nothing learnt")
    assert sentences[0].startswith("lora (0.900) is not clearly above")


def test_the_comparison_is_read_in_either_direction():
    assert outcome(ZERO, LORA, arm("prefix", "context", 0.80))[0] == "weights needed"
    assert outcome(ZERO, arm("lora", "delta", 0.80), PREFIX)[0] == "context suffices"


def test_an_interval_on_both_sides_of_the_margin_is_no_verdict_and_says_what_could_be_found():
    answer, reason, sentences = outcome(ZERO, PREFIX, LORA, gaps=[("prefix", "lora", -0.0392, 0.0392)])
    assert (answer, reason) == ("no verdict", "wide interval")
    assert "on both sides of -0.020, with 3 seeds and 500 test rows" in sentences[0]


@pytest.mark.parametrize(("low", "answer"), [(-0.0201, "no verdict"), (-0.0199, "alike")])
def test_the_margin_is_two_hundredths_of_an_accuracy(low, answer):
    assert outcome(ZERO, PREFIX, LORA, gaps=[("prefix", "lora", low, 0.01)])[0] == answer


def test_the_margin_is_two_points_of_bleu():
    arms = [arm("zero-shot", "none", 5.0), arm("prefix", "context", 60.0), arm("lora", "delta", 60.5)]
    gaps = [("prefix", "lora", -1.9, 0.9)]
    answer, _, sentences = outcome(*arms, gaps=gaps, metric="bleu", chance=None)
    assert answer == "alike"
    assert "within 2.00 either way" in sentences[0]
    assert outcome(*arms, gaps=[("prefix", "lora", -2.1, 0.9)], metric="bleu", chance=None)[0] == "no verdict"


def test_a_text_arm_as_good_as_the_best_trained_one_is_a_prompt_alone():
    answer, reason, sentences = outcome(ZERO, arm("4-shot", "text", 0.905), PREFIX, LORA)
    assert (answer, reason) == ("context suffices", "prompt alone")
    assert "A prompt alone does it: 4-shot (0.905) trains nothing" in sentences[0]


def test_a_prompt_alone_needs_no_context_arm_to_be_named():
    lost = arm("prefix", "context", status="diverged")
    assert outcome(ZERO, arm("4-shot", "text", 0.905), lost, LORA)[1] == "prompt alone"


def test_zero_shot_at_chance_is_not_a_prompt_that_does_it_though_it_ties():
    bad = [arm("zero-shot", "none", 0.5), arm("prefix", "context", 0.5), arm("lora", "delta", 0.5)]
    answer, reason, sentences = outcome(*bad)
    assert (answer, reason) == ("no verdict", "nothing learnt")
    assert "neither prefix (0.500) nor lora (0.500) is clearly above chance (0.500)" in sentences[0]
    assert "(no sign that the skill is latent)" in sentences[1]


def test_without_a_chance_level_zero_shot_cannot_vouch_for_itself():
    same = [arm("zero-shot", "none", 0.3), arm("prefix", "context", 0.3), arm("lora", "delta", 0.3)]
    assert outcome(*same, chance=None)[:2] == ("no verdict", "nothing learnt")


def test_arms_are_chosen_by_dev_and_never_by_test():
    lucky = arm("lucky", "context", 0.95, dev=0.60)
    steady = arm("steady", "context", 0.80, dev=0.85)
    answer, _, sentences = outcome(ZERO, lucky, steady, LORA)
    assert answer == "weights needed"
    assert "steady (0.800)" in sentences[0]


def test_a_context_that_is_level_with_a_delta_but_not_above_its_floor_earns_nothing():
    arms = [arm("zero-shot", "none", 0.52), arm("prefix", "context", 0.53), arm("lora", "delta", 0.545)]
    gaps = [
        ("prefix", "lora", -0.018, 0.0),
        ("zero-shot", "prefix", -0.03, 0.01),
        ("zero-shot", "lora", -0.03, -0.01),
    ]
    answer, reason, sentences = outcome(*arms, gaps=gaps)
    assert (answer, reason) == ("no verdict", "nothing learnt")
    assert sentences[0].startswith("prefix (0.530) is not clearly above chance (0.500) and zero-shot (0.520)")


def test_a_head_that_does_as_well_alone_is_no_verdict():
    answer, reason, sentences = outcome(PREFIX, LORA, arm("head", "head", 0.90))
    assert (answer, reason) == ("no verdict", "head alone")
    assert "A head on the frozen features, head (0.900)" in sentences[0]
    assert outcome(PREFIX, LORA, arm("head", "head", 0.70))[0] == "alike"


def test_a_context_still_rising_is_not_proof_that_weights_are_needed():
    rising = arm("prefix", "context", 0.80, curve=RISING)
    answer, reason, sentences = outcome(ZERO, rising, LORA)
    assert (answer, reason) == ("no verdict", "undertrained")
    assert "prefix was still learning when it stopped:" in sentences[0]
    assert "change its dev score +0.2." in sentences[0]  # from .80 to the end of the scale


def test_a_curve_is_as_noisy_as_the_rows_that_its_points_are_of():
    slow = arm("prefix", "context", 0.80, curve=(0.70, 0.725, 0.75, 0.775))
    made = results(ZERO, slow, LORA)
    made["data"]["dev"] = {"rows": 1000}
    assert decide(made)["reason"] == "undertrained"
    made["protocol"]["early_rows"] = 32  # of a score of .8 these leave a standard error of .07
    assert decide(made)["answer"] == "weights needed"


def test_a_delta_still_rising_is_not_proof_that_a_context_or_a_prompt_suffices():
    rising = arm("lora", "delta", 0.90, curve=RISING)
    assert outcome(ZERO, PREFIX, rising)[:2] == ("no verdict", "undertrained")
    good = arm("4-shot", "text", 0.95)
    assert outcome(ZERO, good, arm("prefix", "context", 0.70), rising)[:2] == ("no verdict", "undertrained")


def test_a_delta_that_rises_with_no_room_left_to_be_ahead_leaves_the_verdict_as_it_is():
    """At .99 on dev it can gain .01 at most, less than the margin, whatever its slope says."""
    rising = arm("lora", "delta", 0.99, curve=RISING)
    for run in rising["runs"]:
        run["dev"] = 0.99
    assert outcome(ZERO, arm("prefix", "context", 0.99), rising)[0] == "alike"


def falling(name, group, score, losses, **kwargs):
    made = arm(name, group, score, **kwargs)
    for run in made["runs"]:
        run["curve"] = [{"step": 100 * (i + 1), "loss": y, "dev": 0.0} for i, y in enumerate(losses)]
    return made


def test_a_context_with_nothing_on_dev_but_a_falling_loss_is_not_proof_that_weights_are_needed():
    zero = arm("zero-shot", "none", 0.0, half=0.0)
    for losses, answer in (((5.0, 2.0, 0.6, 0.18), "no verdict"), ((5.0, 4.0, 3.2, 2.75), "weights needed")):
        context = falling("prefix", "context", 0.0, losses, half=0.0)
        got, _, sentences = outcome(zero, context, LORA, metric="exact_match", chance=None)
        assert got == answer
        assert ("its training loss -0.179" in sentences[0]) == (answer == "no verdict")


def test_a_falling_loss_does_not_count_where_the_dev_score_is_flat_above_the_floor():
    assert outcome(ZERO, falling("prefix", "context", 0.80, (5.0, 4.0, 3.2, 2.0)), LORA)[0] == "weights needed"


def test_arms_over_the_budget_are_no_arms_at_the_budget():
    big = {**arm("lora-big", "delta", 0.99), "parameters": {"stored": 110_000}}
    near = {**arm("lora", "delta", 0.90), "parameters": {"stored": 100_000}}
    assert "lora (0.900)" in outcome(ZERO, PREFIX, big, near)[2][0]
    assert "No delta arm finished (lora-big: over the budget)" in outcome(ZERO, PREFIX, big)[2][0]
    many = results(ZERO, PREFIX, big, near)
    many["protocol"] |= {"budget": None, "budgets": [1000, 120_000]}
    assert decide(many)["answer"] == "weights needed"  # at the largest budget lora-big is the best
    assert "up to 120,000 stored parameters" in decide(many)["sentences"][2]


@pytest.mark.parametrize(
    ("stored", "budgets", "told"),
    [
        ((100_000, 96_000), [100_000], "100,000 stored parameters"),
        ((99_840, 35_840), [100_000], "at most 100,000 stored parameters (from 35,840 to 99,840)"),
        ((104_000, 35_840), [100_000], "at most 104,000 stored parameters (from 35,840 to 104,000)"),
        ((50_000, 50_000), [100_000], "at most 100,000 stored parameters (50,000 in fact)"),
        ((99_840, 110_000), [100_000], "100,000 stored parameters"),  # what is over the budget is not compared
        ((0, 0), [100_000], "100,000 stored parameters"),
        ((35_840, 99_840), [1000, 100_000], "up to 100,000 stored parameters"),
        ((900, 50_000), [1000, 100_000], "up to 100,000 stored parameters (from 900 to 50,000)"),
    ],
)
def test_the_last_sentence_tells_the_sizes_where_arms_are_well_below_the_budget(stored, budgets, told):
    arms = [{**one, "parameters": {"stored": n}} for one, n in zip((PREFIX, LORA), stored, strict=True)]
    made = results(ZERO, *arms)
    made["protocol"] |= {"budget": None, "budgets": budgets}
    assert f"these data, {told}, 400 steps" in decide(made)["sentences"][-1]


def test_a_delta_that_failed_is_not_advised():
    assert decide(results(ZERO, PREFIX))["run"] == "Run it with a delta that fits, such as `--arms lora`."
    failed = results(ZERO, PREFIX, arm("lora", "delta", status="out of memory"))
    assert decide(failed)["run"] == "Run it with a delta that fits; `tunescope arms` lists them."
    failed = results(ZERO, LORA, arm("prefix", "context", status="out of memory"))
    assert decide(failed)["run"] == "Run it with a context that fits; `tunescope arms` lists them."


def test_the_arm_that_came_out_ahead_may_still_rise():
    assert outcome(ZERO, arm("prefix", "context", 0.80), arm("lora", "delta", 0.9, curve=RISING))[0] == "weights needed"


def test_a_curve_without_dev_scores_is_no_evidence_of_rising():
    silent = arm("prefix", "context", 0.80, curve=(None,) * 4)
    assert outcome(ZERO, silent, LORA)[0] == "weights needed"


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        ([], "No delta arm finished: contexts"),
        ([ZERO, PREFIX], "No delta arm finished: contexts"),
        ([ZERO, LORA], "No context arm finished: deltas"),
        (
            [
                PREFIX,
                arm("lora", "delta", status="diverged"),
                arm("adapter", "delta", status="out of memory"),
            ],
            "No delta arm finished (lora: diverged, adapter: out of memory)",
        ),
        ([arm("prefix", "context", status="refused"), LORA], "No context arm finished (prefix, a context: refused)"),
    ],
)
def test_missing_and_diverged_arms_are_no_verdict_and_are_named(arms, told):
    answer, reason, sentences = outcome(*arms)
    assert (answer, reason) == ("no verdict", "missing arms")
    assert told in sentences[0]


def test_the_skill_is_called_partly_latent_where_an_untrained_arm_is_clear_of_chance():
    assert (
        "Without training the model does part of it: zero-shot (0.520), 4-shot (0.610) are above chance (0.500)"
        in outcome(ZERO, SHOTS, PREFIX, LORA)[2][1]
    )


def test_full_tuning_clearly_ahead_of_both_kinds_is_neither():
    answer, reason, sentences = outcome(ZERO, PREFIX, LORA, arm("full", "full", 0.97))
    assert (answer, reason) == ("neither, at this budget", "full tuning ahead")
    assert "Full tuning, full (0.970), is more than 0.020 ahead of prefix (0.900) and lora (0.900)" in sentences[0]
    assert "of other kinds: full (0.970) (yardsticks)." in sentences[1]
    assert outcome(ZERO, PREFIX, LORA, arm("full", "full", 0.93))[0] == "alike"  # the interval reaches the margin
    assert outcome(ZERO, PREFIX, arm("lora", "delta", 0.96), arm("full", "full", 0.97))[0] == "weights needed"


def test_full_tuning_ahead_of_an_arm_that_is_still_learning_is_no_verdict():
    rising = arm("lora", "delta", 0.90, curve=RISING)
    assert outcome(ZERO, PREFIX, rising, arm("full", "full", 0.97))[:2] == ("no verdict", "undertrained")


def test_what_neither_kind_learns_but_another_does_is_neither():
    low = [arm("zero-shot", "none", 0.5), arm("prefix", "context", 0.51), arm("lora", "delta", 0.51)]
    answer, reason, sentences = outcome(*low, arm("mam", "both", 0.9))
    assert (answer, reason) == ("neither, at this budget", "learnt elsewhere")
    assert sentences[0].startswith("It can be learnt, as mam (0.900) shows, but neither prefix (0.510) nor lora")
    gaps = [("prefix", "full", -0.4, 0.02), ("lora", "full", -0.4, 0.02)]
    answer, reason, sentences = outcome(*low, arm("full", "full", 0.9), gaps=gaps)
    assert (answer, reason) == ("no verdict", "learnt elsewhere")
    assert sentences[0].endswith("(0.500), nor shown to be more than 0.020 behind.")


@pytest.mark.parametrize(
    ("other", "gap", "reason"),
    [
        (("full", "full", 0.89), (0.03, 0.08), "full tuning ahead"),
        (("head", "head", 0.86), (-0.01, 0.06), "head alone"),
        (("4-shot", "text", 0.86), (-0.01, 0.06), "prompt alone"),
    ],
)
def test_what_few_seeds_say_of_an_arm_does_not_decide_against_the_scores_of_all(other, gap, reason):
    """As after looks: the pair is over the three seeds that both have, and the two that decide have twelve."""
    gaps = [(other[0], name, *gap) for name in ("prefix", "lora")]
    assert outcome(ZERO, arm(*other), PREFIX, LORA, gaps=gaps)[1] == "alike"
    low = [arm("prefix", "context", other[2] - 0.035), arm("lora", "delta", other[2] - 0.035)]
    assert outcome(ZERO, arm(*other), *low, gaps=gaps)[1] == reason


def test_an_edge_that_rounding_would_put_on_the_margin_or_on_zero_has_the_digits_that_tell():
    told = {
        (-0.0199, 0.01): "interval -0.0199 to 0.010",
        (-0.0201, 0.01): "interval -0.0201 to 0.010",
        (-0.02003, -0.00001): "interval -0.02003 to -0.00001",
        (-0.02, 0.0): "interval -0.020 to 0.000",
        (-0.03, 0.0201): "interval -0.030 to 0.0201",
    }
    for gap, words in told.items():
        assert words in outcome(ZERO, PREFIX, LORA, gaps=[("prefix", "lora", *gap)])[2][0]


def test_one_seed_or_two_give_no_verdict_and_ask_for_three():
    for seeds in ([0], [0, 1]):
        found = decide(results(ZERO, arm("prefix", "context", 0.50), LORA, seeds=seeds))
        assert (found["answer"], found["reason"]) == ("no verdict", "few seeds")
        assert f"--seeds 3` (it had {len(seeds)})" in found["run"]


def test_seeds_that_a_resume_added_are_counted_in_what_it_asks_for():
    made = results(ZERO, arm("prefix", "context", 0.50), LORA, seeds=[0])
    for one in made["comparisons"]:
        one["seeds"] = 2
    found = decide(made)
    assert "With 2 seeds" in found["sentences"][0]
    assert "(it had 2)" in found["run"]


def at_one_seed(made, **fields):
    return made | {"runs": made["runs"][:1], "varies": True} | fields


@pytest.mark.parametrize(
    ("name", "group", "pair", "reason"),
    [
        ("full", "full", (0.90, 0.90), "full tuning ahead"),
        ("full", "full", (0.51, 0.51), "learnt elsewhere"),
        ("head", "head", (0.90, 0.90), "head alone"),
        ("demos:k=4", "text", (0.90, 0.90), "prompt alone"),
    ],
)
def test_where_looks_gave_seeds_to_two_arms_alone_the_one_run_of_another_decides_nothing(name, group, pair, reason):
    both = arm("prefix", "context", pair[0]), arm("lora", "delta", pair[1])
    able, zero = arm(name, group, 0.97), arm("zero-shot", "none", 0.5)
    gaps = [(one["name"], name, -0.47, 0.02) for one in both] if reason == "learnt elsewhere" else []
    many = results(zero, *both, able, gaps=gaps)
    assert decide(many)["reason"] == reason
    few = results(at_one_seed(zero, varies=False), *both, at_one_seed(able), gaps=gaps, seeds=[0])
    for one in few["comparisons"]:
        one["seeds"] = 3  # earlier versions counted the one run as many
    found = decide(few)
    assert (found["answer"], found["reason"], found["more_seeds"]) == ("no verdict", "few seeds", False)
    assert f"It turns on {name} (0.970), and with its 1 seed" in found["sentences"][0]
    assert "--seeds 3" in found["run"]
    assert "behind another" not in " ".join(found["sentences"])


@pytest.mark.parametrize(
    ("raw", "seeds", "own"),
    [
        ({"group": "none"}, [0], None),  # of an earlier version, as all without "varies"
        ({"group": "text", "demonstrations": {"lines": [1]}}, [0], 1),
        ({"group": "text", "demonstrations": {"lines": [1]}}, [0, 1, 2], None),  # nearest: the others have three runs
        ({"group": "full"}, [0, 1, 2], 1),
        ({"group": "context", "trials": []}, [0], None),
        ({"group": "text", "varies": True}, [0, 1, 2], 1),
    ],
)
def test_one_run_stands_for_every_seed_where_nothing_is_trained_or_drawn(raw, seeds, own):
    run = {"seed": 0, "stats": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "demonstrations": raw.pop("demonstrations", None)}
    one = {"name": "one", "runs": [run], **raw}
    other = {"name": "other", "group": "delta", "runs": [run | {"seed": s} for s in (0, 1, 2)]}
    pairs = reader.Pairs({"protocol": {"seeds": seeds}}, "accuracy", [])
    assert pairs.of_its_own(one) == own
    assert pairs.of(one, other).seeds == (own or 3)


def test_the_mechanism_is_told_where_it_was_measured():
    lora = arm("lora", "delta", 0.90, mechanism={"content_pattern_shift": 0.31, "context_share": 0.0})
    prefix = arm("prefix", "context", 0.80, mechanism={"content_pattern_shift": 0.04, "context_share": 0.6})
    sentence = outcome(ZERO, prefix, lora)[2][1]
    assert "attention over the content moved by 0.04 in prefix and 0.31 in lora" in sentence


def test_the_last_sentence_says_what_is_not_claimed():
    sentence = outcome(ZERO, PREFIX, LORA)[2][2]
    assert "this model, these data, 98,304 stored parameters, 400 steps and the learning rates tried" in sentence
    assert "over seeds and test rows" in sentence
    assert "over test rows only, for there is one seed" in outcome(ZERO, PREFIX, LORA, seeds=[0])[2][-1]


def test_a_comparison_that_was_not_stored_is_made_from_the_rows():
    g = np.random.default_rng(0)

    def with_rows(name, group, rate, seeds):
        runs = [
            {
                "seed": s,
                "dev": rate,
                "curve": [],
                "stats": g.binomial(1, rate, (400, 1)).repeat(3, 1).tolist(),
            }
            for s in seeds
        ]
        return {"name": name, "group": group, "status": "done", "runs": runs, "score": rate}

    arms = [
        with_rows("zero-shot", "none", 0.5, [0]),
        with_rows("prefix", "context", 0.6, [0, 1, 2]),
        with_rows("lora", "delta", 0.9, [0, 1, 2]),
    ]
    made = {**results(), "arms": arms}
    verdict = decide(made)
    assert verdict["answer"] == "weights needed"
    assert -0.40 < verdict["evidence"]["pair"]["low"] < verdict["evidence"]["pair"]["high"] < -0.2
    apart = [arms[0], {**arms[1], "runs": arms[1]["runs"][:1]}, {**arms[2], "runs": arms[2]["runs"][1:]}]
    assert "share no seed to be compared on" in decide({**made, "arms": apart})["sentences"][0]


def test_rows_that_share_an_input_are_counted_once():
    runs = [{"stats": [[1.0], [0.0], [1.0]]}]
    results = {"data": {"test": {"rows": 20}}, "arms": [{"runs": []}, {"runs": runs}]}
    assert reader.scored_rows(results) == 3
    assert reader.scored_rows({"data": {"test": {"rows": 20}}, "arms": []}) == 20


def imbalanced(name, group, share, others=0.0):
    """200 rows, 180 of them of label 0: answered 0 for a share of these and 1 for a share of the others."""
    right = [[float(n < 180 * share), 0.0, 0.0] for n in range(180)]
    right += [[float(n < 20 * others), 1.0, 0.0] for n in range(20)]
    score = sum(row[0] for row in right) / 200
    found = arm(name, group, score, stats=right)
    return found | {"interval": None}


def test_the_commonest_label_is_no_skill():
    flat = [imbalanced(*one, share=1.0) for one in (("zero-shot", "none"), ("prefix", "context"), ("lora", "delta"))]
    answer, reason, sentences = outcome(*flat)
    assert (answer, reason) == ("no verdict", "nothing learnt")
    assert "clearly above the commonest label (0.900)" in sentences[0]
    assert "not clear of the commonest label (0.900)" in sentences[1]
    minority = imbalanced("zero-shot", "none", share=0.0, others=1.0)
    assert outcome(minority, *flat[1:])[:2] == ("no verdict", "nothing learnt")
    learnt = [imbalanced("prefix", "context", 1.0, 0.9), imbalanced("lora", "delta", 1.0, 0.9)]
    assert outcome(flat[0], *learnt)[0] == "alike"


@pytest.mark.parametrize(("rows", "answer"), [(2, "no verdict"), (148, "no verdict"), (149, "alike")])
def test_a_tie_without_an_exception_says_no_more_than_its_rows(rows, answer):
    zero, *both = [
        arm(*one, stats=[[right, float(n % 2), 0.0] for n in range(rows)]) | {"interval": None}
        for one, right in (
            (("zero-shot", "none", 0.0), 0.0),
            (("prefix", "context", 1.0), 1.0),
            (("lora", "delta", 1.0), 1.0),
        )
    ]
    given = results(zero, *both) | {"comparisons": []}
    assert decide(given)["answer"] == answer


def scored(name, group, shares, rows=40):
    """An arm whose seeds answer these shares of the rows right, each others."""
    g = np.random.default_rng(len(name))
    tables = [[[float(one), 0.0, 0.0] for one in g.permutation(rows) < share * rows] for share in shares]
    runs = [{"seed": seed, "stats": table, "dev": 0.5} for seed, table in enumerate(tables)]
    return {"name": name, "group": group, "status": "done", "runs": runs, "varies": True}


def test_a_difference_that_was_told_at_another_level_is_made_anew_at_that_of_the_looks():
    a, b = scored("prefix", "context", [0.6, 0.7, 0.8]), scored("lora", "delta", [0.5, 0.5, 0.6])
    once, looking = {"seeds": [0, 1, 2]}, {"seeds": [0, 1, 2], "looks": {"planned": [3, 6]}}
    pair = reader.Pairs({"protocol": once}, "accuracy", [a, b]).of(a, b)
    stored = {"a": "prefix", "b": "lora", "difference": pair.difference, "interval": [pair.low, pair.high]}
    stored |= {"level": 0.95, "parts": pair.parts, "freedom": pair.freedom, "seeds": 3}
    found = reader.Pairs({"protocol": looking, "comparisons": [stored]}, "accuracy", [a, b]).of(a, b)
    wider = scipy_stats.t.ppf(0.9875, pair.freedom) / scipy_stats.t.ppf(0.975, pair.freedom)
    assert found.level == 0.975  # of two looks
    assert found.high - found.low == pytest.approx(wider * (pair.high - pair.low), rel=1e-9)


def test_how_far_seeds_scatter_is_learnt_from_trained_arms_alone():
    arms = [scored("prefix", "context", [0.6, 0.62, 0.6]), scored("lora", "delta", [0.5, 0.52, 0.5])]
    drawn = scored("2-shot", "text", [0.1, 0.5, 0.9])
    alone, beside = (reader.Pairs({}, "accuracy", some).of(*arms) for some in (arms, [*arms, drawn]))
    assert beside == alone


def test_one_chosen_run_is_held_against_another_arm_s_runs_as_they_scatter_themselves():
    arms = [scored("prefix", "context", [0.6, 0.9, 0.6]), scored("lora", "delta", [0.5, 0.52, 0.5])]
    found = reader.Pairs({}, "accuracy", arms).chosen(arms[0], 1, arms[1], None)
    one, every = stats.by_seed(arms[0]["runs"])[1], stats.by_seed(arms[1]["runs"])
    alone = stats.paired(dict.fromkeys(every, one), every, stats.scorer("accuracy"))
    assert [found.low, found.high] == pytest.approx([alone.low, alone.high], rel=1e-9)


def test_more_seeds_lower_what_is_the_seeds_own_and_what_is_of_both_and_leave_the_rows():
    parts = {"seeds": 0.4, "rows": 0.2, "both": 0.1}
    pair = reader.Pair("a", "b", 0.0, -1.0, 1.0, 0.95, "", 3, None, parts)
    assert advice._with_seeds(pair, parts, 6) == {"seeds": 0.2, "rows": 0.2, "both": 0.05}


@pytest.mark.parametrize("rows", [60, 100, 140])
def test_of_arms_that_answer_all_rows_alike_more_rows_are_advised_and_no_seeds(rows):
    def alike(count):
        labels = [index % 2 for index in range(count)]
        right = [[int(index % 10 < 8), one, one if index % 10 < 8 else 1 - one] for index, one in enumerate(labels)]
        zero = arm("zero-shot", "none", 0.5, stats=[[one, one, 1] for one in labels])
        made = results(zero, arm("prefix", "context", 0.8, stats=right), arm("lora", "delta", 0.8, stats=right))
        return made | {"data": {"test": {"rows": count}}}

    found = decide(alike(rows))
    assert found["reason"] == "wide interval"
    assert found["run"].startswith("More seeds do not decide it")
    assert not found["more_seeds"]
    (wanted,) = re.findall(r"about ([\d,]+) \(now", found["run"])
    assert decide(alike(int(wanted.replace(",", ""))))["reason"] != "wide interval"
