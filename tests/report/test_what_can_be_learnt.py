"""Rules 5 and 8 at their edges: which arms show that it can be learnt, and what a chosen run counts for."""

import pytest
from made_results import ZERO, arm, results
from test_stability import asked, made

from tunescope.report.next_steps import steps
from tunescope.report.verdict.reader import gather
from tunescope.report.verdict.verdict import decide

FLAT = made("prefix", "context", (0.5, 0.501, 0.499)), made("lora", "delta", (0.5, 0.499, 0.501))
NONE = arm("zero-shot", "none", 0.5)
COMMAND = "tunescope compare gpt2 a.jsonl --arms zero-shot prefix lora --seeds 3 --steps 400"


def told(*arms, **protocol):
    found = decide(asked(*arms, **protocol))
    return found["answer"], found["reason"]


def test_another_that_learnt_has_to_be_ahead_by_the_margin_and_in_every_seed_s_score():
    low = [arm("prefix", "context", 0.51), arm("lora", "delta", 0.51)]
    for gap, answer in (((0.01, 0.4), "no verdict"), ((0.021, 0.4), "neither, at this budget")):
        gaps = [(name, "mam", -gap[1], -gap[0]) for name in ("prefix", "lora")]
        found = decide(results(NONE, *low, arm("mam", "both", 0.7), gaps=gaps))
        assert (found["answer"], found["reason"]) == (answer, "learnt elsewhere")
    near = [arm("prefix", "context", 0.51), arm("lora", "delta", 0.51)]
    gaps = [(name, "mam", -0.4, -0.03) for name in ("prefix", "lora")]  # over the seeds of both; all of them say less
    gaps += [("zero-shot", "mam", -0.5, -0.01)]
    found = decide(results(NONE, *near, arm("mam", "both", 0.525, half=0.005), gaps=gaps))
    assert (found["answer"], found["reason"]) == ("no verdict", "learnt elsewhere")


def test_it_is_not_neither_where_a_chosen_run_is_not_shown_to_be_behind():
    """Of full tuning rule 2 has said so just before: no more is said by another rule."""
    prefix = made("prefix", "context", (0.53, 0.49, 0.49), rows=200)
    for run, dev in zip(prefix["runs"], (0.62, 0.5, 0.5), strict=True):
        run["dev"] = dev
    found = asked(prefix, made("lora", "delta", [0.5] * 3, rows=200), made("full", "full", [0.57] * 3, rows=200))
    found["arms"][0] = made("zero-shot", "none", [0.5], rows=200)
    evidence = gather(found, 0.02)
    assert all(pair.low > 0.02 for pair in evidence.able_pairs)
    assert any(pair.high > -0.02 for pair in evidence.chosen_over_able)
    verdict = decide(found)
    assert (verdict["answer"], verdict["reason"]) == ("no verdict", "learnt elsewhere")
    assert "More seeds tell an arm from its luck" in verdict["run"]  # for the prefix scatters


def test_steps_are_asked_for_where_no_seeds_scatter():
    gaps = [(name, "mam", -0.4, 0.1) for name in ("prefix", "lora")]
    low = [arm("prefix", "context", 0.51), arm("lora", "delta", 0.51)]
    found = decide(results(NONE, *low, arm("mam", "both", 0.7), gaps=gaps))
    assert "`--steps 800`" in found["run"] and found["more_seeds"] is False


def test_a_size_above_the_budget_shows_what_can_be_learnt_and_one_within_it_is_passed_over():
    large = made("lora-64", "delta", [0.9] * 3) | {"parameters": {"stored": 10_000}}
    small = made("soft", "context", [0.9] * 3) | {"parameters": {"stored": 900}}
    small["runs"] = [run | {"dev": 0.4} for run in small["runs"]]
    assert told(*FLAT, large, budget=1000) == ("neither, at this budget", "learnt elsewhere")
    assert told(*FLAT, small, budget=1000) == ("no verdict", "passed over")
    assert gather(asked(*FLAT, large, small, budget=1000), 0.02).passed_over.name == "soft"


def test_words_show_it_only_where_they_are_ahead_of_the_model_untrained():
    for score, able in ((0.58, None), (0.7, "words")):
        found = asked(*FLAT, made("words", "text", [score]))
        found["arms"][0] = made("zero-shot", "none", [0.6])
        seen = gather(found, 0.02).able
        assert (seen and seen.name) == able


def test_a_chosen_run_has_to_be_above_zero_shot_too():
    prefix = made("prefix", "context", (0.62, 0.52, 0.51))
    for zero, learnt in ((0.5, True), (0.62, False)):
        found = asked(prefix, FLAT[1])
        found["arms"][0] = made("zero-shot", "none", [zero])
        assert gather(found, 0.02).context.chosen_learnt is learnt
    steady = gather(asked(made("prefix", "context", [0.9] * 3), FLAT[1]), 0.02).context
    assert steady.learnt and not steady.chosen_learnt


def test_an_unstable_context_whose_chosen_run_is_not_told_from_chance_does_not_suffice():
    """The delta is hardly better, so that the run is not worse than it by the margin."""
    lora = made("lora", "delta", [0.525] * 3, rows=4000)
    for best, answer in ((0.51, "no verdict"), (0.52, "context suffices")):
        found = asked(made("prefix", "context", (best, 0.40, 0.41), rows=4000), lora)
        found["arms"][0] = made("zero-shot", "none", [0.5], rows=4000)
        evidence = gather(found, 0.02)
        assert evidence.delta.learnt and evidence.chosen_context.low > -0.02
        assert decide(found)["answer"] == answer


def test_of_equal_development_scores_the_smaller_artifact_is_the_best():
    small = made("small", "context", (0.8, 0.8, 0.8)) | {"parameters": {"stored": 10}}
    large = made("large", "context", (0.8, 0.8, 0.8)) | {"parameters": {"stored": 20}}
    for run in (*small["runs"], *large["runs"]):
        run["curve"] = [{"step": 1, "loss": 0.1 if run in large["runs"] else 0.2, "dev": 0.8}]
    assert gather(asked(large, small, FLAT[1]), 0.02).context.name == "small"


def test_more_seeds_are_a_step_where_they_were_asked_for_and_nothing_is_said_of_deciding():
    prefix, soft = made("prefix", "context", (0.50, 0.85, 0.52)), made("soft", "context", (0.73, 0.74, 0.75))
    prefix["runs"] = [run | {"dev": 0.76} for run in prefix["runs"]]
    looks = {"planned": [3, 6, 12], "at": 3, "deciding": []}
    found = asked(prefix, soft, FLAT[1], looks=looks) | {"command": COMMAND}
    verdict = decide(found)
    assert (verdict["reason"], verdict["more_seeds"]) == ("passed over", True)
    first = steps(found | {"verdict": verdict})[0]
    assert first == {"why": "More seeds tell an arm from its luck.", "command": "tunescope resume RUN --max-seeds 6"}
    found["protocol"]["k_shot"] = 16
    assert "--seeds 6" in steps(found | {"verdict": decide(found)})[0]["command"]


def test_nothing_is_looked_into_where_no_artifact_was_kept():
    found = results(ZERO, arm("prefix", "context", 0.9), arm("lora", "delta", 0.6), arm("full", "full", 0.9))
    found |= {"command": COMMAND, "best": {"arm": "prefix", "path": None}}
    assert not [one for one in steps(found) if "probe" in one["command"]]


def test_a_delta_whose_chosen_run_learnt_and_mean_did_not_asks_for_seeds():
    low = made("prefix", "context", (0.30, 0.30, 0.30))
    found = asked(
        low, made("lora", "delta", (0.60, 0.49, 0.50)), looks={"planned": [3, 6, 12], "at": 3, "deciding": []}
    )
    verdict = decide(found)
    assert verdict["reason"] == "nothing learnt" and verdict["more_seeds"] is True
    assert "is not clearly above chance" in verdict["sentences"][0]
    assert "though its chosen run is;" in verdict["sentences"][0]
    assert steps(found | {"verdict": verdict, "command": COMMAND})[0]["command"] == "tunescope resume RUN --max-seeds 6"


@pytest.mark.parametrize("looks", [None, {"planned": [3, 6, 12], "at": 3, "deciding": []}])
def test_a_pair_that_was_stored_says_of_how_many_seeds_it_is(looks):
    found = results(ZERO, arm("prefix", "context", 0.80), arm("lora", "delta", 0.9))
    for one in found["comparisons"]:
        one["seeds"] = 3
    assert "both have" not in decide(found)["sentences"][0]
    found["arms"][2]["runs"] = [*found["arms"][2]["runs"], *(run | {"seed": 9} for run in found["arms"][2]["runs"])]
    assert "over the 3 seeds that both have, the difference is -0.100" in decide(found)["sentences"][0]
