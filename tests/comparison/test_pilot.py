"""A pilot: what it cuts, what it says, and that what it rests on is where it is said to be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tinyrun
from made_results import LORA, PREFIX, ZERO, results
from tokenizers import processors

from tunescope.comparison import comparison, procedure
from tunescope.comparison.pilot import piloted
from tunescope.errors import UserError
from tunescope.report.verdict import forecast
from tunescope.report.verdict.forecast import Shares, answer
from tunescope.report.verdict.reader import gather
from tunescope.report.verdict.verdict import decide
from tunescope.system import run_folder
from tunescope.trial import command, identity, plan, plan_check, plan_json
from tunescope.trial.train.settings import Settings

WHOLE = {"steps": 400, "seeds": [0, 1, 2], "eval_every": 40, "patience": 5, "trials": 3, "rates": []}


def asked(**changes) -> plan.Plan:
    given = {"model": "m", "data": {"train": "/t.jsonl"}, "task": {"kind": "generation"}, "seeds": (4, 5, 6)}
    return plan.Plan(**{**given, "settings": Settings(steps=437, eval_every=50, patience=3), **changes})


def test_it_takes_at_most_an_eighth_of_the_steps_of_the_whole():
    whole, cut = asked(), piloted(asked())
    assert (cut.trial_steps, cut.settings.steps, cut.seeds, cut.trials, cut.past) == (22, 249, (4,), 3, 3)
    taken = cut.trials * cut.trial_steps + cut.settings.steps * len(cut.seeds)
    assert taken * 8 <= whole.settings.steps * (whole.trials + len(whole.seeds))  # of which one run is past an end
    assert cut.settings.patience > cut.settings.steps / cut.settings.eval_every  # never stopped early


@pytest.mark.parametrize(
    ("changes", "trial", "steps"),
    [
        ({"seeds": (0,), "trials": 1}, None, 52),  # 12 % of one run, and no rate to choose
        ({"seeds": (0,), "trials": 2}, 22, 113),  # 157 in all
        ({"seeds": (0,), "trials": 2, "beyond": 0}, 22, 113),
        ({"seeds": (0, 1), "trials": 2}, 22, 166),
        ({"seeds": tuple(range(10))}, 22, 437),  # no run longer than the whole's, no trial than a twentieth
        ({"seeds": (0, 1, 2), "rates": (1e-4, 1e-3, 1e-2, 1e-1)}, 22, 279),
    ],
)
def test_the_length_of_its_trials_and_runs(changes, trial, steps):
    cut = piloted(asked(**changes))
    assert (cut.trial_steps, cut.settings.steps, cut.rates) == (trial, steps, asked(**changes).rates)


def test_its_command_asks_for_the_whole_with_pilot_and_its_config_comes_back(tmp_path):
    cut = piloted(asked())
    assert command.command(cut) == command.command(asked()) + " --pilot"
    more = replace(asked(), max_seeds=6)
    assert "--max-seeds 6" in command.command(piloted(more)) == command.command(more) + " --pilot"
    older, now = (plan_json.to_json(cut) | {"version": run_folder.VERSION} for _ in range(2))
    older["pilot_of"] = {name: value for name, value in older["pilot_of"].items() if name != "max_seeds"}
    run_folder.write_config(tmp_path, older)
    now["pilot_of"] = now["pilot_of"] | {"max_seeds": 12}
    run_folder.check_config(tmp_path, now, procedure.UNASKED)  # a pilot that an earlier version began
    assert identity.default_folder(piloted(more)) == identity.default_folder(cut)
    with pytest.raises(UserError, match="--max-seeds adds seeds to a comparison, and a pilot has one seed"):
        plan_check.check(replace(cut, max_seeds=6))
    kept = json.loads(json.dumps(plan_json.to_json(cut)))
    assert plan_json.from_json(kept, Path("config.json")) == replace(cut, beyond=cut.past)


@pytest.mark.parametrize(
    ("context", "delta", "layers", "expected"),
    [
        (0.91, 0.95, 12, "context suffices"),
        (0.51, 0.20, 1, "context suffices"),
        (0.49, 0.49, 1, "no verdict"),  # nobody learnt it
        (0.85, 0.96, 1, "no verdict"),
        (0.30, 0.49, 1, "no verdict"),
        (0.60, 1.00, 1, "no verdict"),  # it is on its way
        (0.40, 1.00, 3, "no verdict"),
        (0.24, 0.80, 1, "weights needed"),
        (0.00, 0.21, 3, "weights needed"),
        (0.00, 1.00, 4, "no verdict"),  # it mostly comes up
    ],
)
def test_the_two_lines(context, delta, layers, expected):
    assert answer(Shares(context, delta, layers)) == expected


def test_weights_are_needed_of_no_encoder_for_its_contexts_come_up_in_longer_runs() -> None:
    assert answer(Shares(0.0, 1.0, 1, causal=False)) == "no verdict"
    assert answer(Shares(0.9, 0.95, 1, causal=False)) == "context suffices"
    for kind, expected in (("decoder", "weights needed"), ("encoder", "no verdict"), ("encoder-decoder", "no verdict")):
        said = decide(scored(0.1, 0.2, 0.9) | {"model": {"layers": 2, "kind": kind}})
        assert said["answer"] == expected
        assert ("that is no decoder" in said["sentences"][0]) == (kind != "decoder")


def shown(context_loss, delta_loss, first=4.0):
    """Results in which the two arms' losses ended there."""
    found = json.loads(json.dumps(results(ZERO, PREFIX, LORA)))
    for arm, last in ((found["arms"][1], context_loss), (found["arms"][2], delta_loss)):
        for run in arm["runs"]:
            run |= {"seconds": 6.0, "mechanism": {"content_pattern_shift": 0.25}}
            run["curve"] = [{"step": 10, "loss": first, "dev": 0.0}, {"step": 40, "loss": last, "dev": 0.0}]
        arm["runs"], arm["trials"] = arm["runs"][:1], [{"dev": 0.0}] * 3
    found["protocol"] |= {"pilot_of": WHOLE, "steps": 40, "seeds": [0]}
    return found


def scored(untrained, context, delta, chance=None):
    """The same where the arms have these scores."""
    found = shown(0.5, 0.5)
    found["task"]["chance"] = chance
    for arm, score in zip(found["arms"], (untrained, context, delta), strict=True):
        arm["score"], arm["runs"] = score, arm["runs"][:1]
        arm["runs"][0]["dev"] = score
    return found


def test_shares_are_of_the_way_from_chance_and_what_trains_nothing_is_a_context():
    seen = forecast.shares(gather(scored(0.4, 0.7, 0.9, chance=0.4), 0.02))
    assert (seen.context, seen.delta) == pytest.approx((0.5, 5 / 6))
    seen = forecast.shares(gather(scored(0.8, 0.7, 0.3), 0.02))
    assert (seen.context, seen.delta) == pytest.approx((0.8, 0.3))


def test_whether_the_context_or_what_trains_nothing_stands_for_contexts_is_told_by_dev():
    found = scored(0.8, 0.7, 0.9)
    found["arms"][0]["runs"][0]["dev"], found["arms"][1]["runs"][0]["dev"] = 0.6, 0.65
    assert forecast.shares(gather(found, 0.02)).context == pytest.approx(0.7)


def test_neither_depth_nor_loss_bears_on_a_forecast():
    for layers in (1, 30):
        for loss in (0.01, 9.4):
            found = scored(0.5, 0.487, 0.627) | {"model": {"layers": layers}}
            found["arms"][1]["runs"][0]["curve"][-1]["loss"] = loss
            assert decide(found)["answer"] == "no verdict"  # what is at chance, with a delta ahead, never suffices


def test_what_is_the_same_at_every_seed_runs_once_in_the_whole_comparison_too():
    """Half an hour untrained: at each of three seeds it would be an hour more than once."""
    minutes = {}
    for varies in (True, False):
        found = scored(0.1, 0.9, 0.9)
        found["arms"][0] |= {"varies": varies, "trials": []}
        found["arms"][0]["runs"] = [found["arms"][0]["runs"][0] | {"seconds": 1800.0}]
        sentence = next(one for one in decide(found)["sentences"] if one.startswith("The whole comparison, "))
        minutes[varies] = float(sentence.partition("would take about ")[2].split()[0])
    assert round(minutes[True] - minutes[False], 1) == 60.0


def test_a_pilot_answers_by_the_forecast_and_says_what_the_whole_would_take():
    for context, expected in ((0.9, "context suffices"), (0.2, "weights needed")):
        said = decide(scored(0.1, context, 0.9))
        assert said["answer"] == expected
        assert said["evidence"]["reason"] == "forecast"
        assert said["sentences"][0].startswith("The pilot's forecast, from one seed and short runs: prefix (")
        assert said["sentences"][3].startswith("The whole comparison, 400 steps and 3 seeds, would take about 10.0 min")
        assert (
            "not needed" in said["sentences"][3] and "grids win" not in said["sentences"][3]
        )  # 2 arms of 6 s, 10 times as long, 3 trials and 2 more seeds


def test_of_a_model_deeper_than_all_that_pilots_were_held_against_the_forecast_says_so():
    calibrated = json.loads((Path(__file__).parents[2] / "results/verdict-calibration.json").read_text())
    deepest = max(
        unit["outcome"]["pilot"]["model"]["layers"] for unit in calibrated["units"] if "pilot" in unit["outcome"]
    )
    assert answer(Shares(0.6, 0.65, 80)) == "context suffices"
    for layers, outside in ((deepest, False), (deepest + 1, True)):
        said = decide(scored(0.1, 0.9, 0.9) | {"model": {"layers": layers, "kind": "decoder"}})
        told = f"a model of {layers} layers lies outside of the worlds that forecasts were held against, which have 1"
        assert said["answer"] == "context suffices"
        assert (f"{told} to {deepest}." in said["sentences"][0]) == outside
        assert ("not needed" not in said["sentences"][-1] and "it is worth it" in said["sentences"][-1]) == outside


def test_rates_past_the_ends_are_counted_in_what_the_whole_may_take():
    found = scored(0.1, 0.9, 0.9)
    found["protocol"]["beyond"] = 3  # 2 arms of 6 s, 10 times as long, 3 more runs: 6 minutes
    assert "about 10.0 minutes of one worker, up to 16.0 where ends of the grids win;" in decide(found)["sentences"][3]


def test_an_unsure_pilot_says_that_the_whole_is_worth_it():
    said = decide(scored(0.1, 0.7, 0.9))
    assert said["answer"] == "no verdict"
    assert "it is worth it" in said["sentences"][3]


def test_a_pilot_without_one_kind_of_arm_has_no_verdict():
    found = shown(0.5, 0.5)
    found["arms"] = found["arms"][:2]
    assert decide(found)["sentences"][0].startswith("A pilot needs a context arm and a delta arm that finished")


def test_a_whole_comparison_is_judged_by_its_own_rule_and_only_a_pilot_carries_the_forecast():
    found = scored(0.1, 0.9, 0.9)
    assert decide(found)["forecast"]["shares"] == {"context": 0.9, "delta": 0.9, "layers": 1, "causal": True}
    found["protocol"]["pilot_of"] = None
    said = decide(found)
    assert said["forecast"] is None
    assert not any("forecast" in sentence for sentence in said["sentences"])
    assert (said["answer"], said["reason"]) == ("no verdict", "few seeds")


def test_a_pilot_runs_from_model_and_files_to_page_with_pictures_from_inside_attention(tmp_path):
    model, data = tinyrun.write(tmp_path)
    found = comparison.compare(
        model,
        data,
        arms=("zero-shot", "prefix", "lora"),
        budget=256,
        settings=replace(Settings(), steps=100, batch_size=8, eval_every=10),
        seeds=2,
        trials=2,
        out=tmp_path / "run",
        quiet=True,
        pilot=True,
    )
    whole = {"steps": 100, "seeds": [0, 1], "eval_every": 10, "patience": 5, "trials": 2, "rates": []} | {
        "max_seeds": None
    }
    assert found.results["protocol"]["pilot_of"] == whole
    protocol = found.results["protocol"]
    assert (protocol["trial_steps"], protocol["steps"]) == (5, 38)  # 12 % of four of 100
    outcomes = [json.loads(path.read_text()) for path in (tmp_path / "run" / "arms").glob("*/result.json")]
    assert {one["steps"]: one["dev"] is None for one in outcomes} == {0: False, 5: True, 38: False}
    assert [one["runs"][0]["steps"] for one in found.results["arms"]] == [0, 38, 38]
    for arm in found.results["arms"][1:]:  # chosen by the training loss alone
        assert 2 <= len(arm["trials"]) <= 5 and all(one["dev"] is None for one in arm["trials"])
        losses = {one["learning_rate"]: one["loss"] for one in arm["trials"]}
        usual = max(list(losses)[:2])  # of two
        far_off = min(losses.values()) < losses[usual] / 2
        assert arm["learning_rate"] == (min(losses, key=losses.__getitem__) if far_off else usual)
    assert found.results["command"].endswith("--pilot")
    assert len(found.results["verdict"]["sentences"]) == 4
    prefix, lora = (one["runs"][0]["mechanism"] for one in found.results["arms"][1:])
    assert prefix["content_pattern_shift"] < 1e-6 < lora["content_pattern_shift"]
    assert 0 < prefix["context_share"] < 1 and lora["context_share"] is None
    inside = found.results["inside"]
    held = {pair["title"].rpartition(", ")[2]: pair for pair in inside["pairs"]}
    assert held["prefix"]["before"]["values"] == held["prefix"]["after"]["values"]
    assert [len(one["values"][-1]) - one["n_context"] for one in inside["figure"]] == [
        len(inside["figure"][0]["queries"])
    ] * 3
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Inside attention" in page and "with prefix" in page and "Attention over the text alone, lora" in page


def test_a_picture_has_no_second_start_behind_words_that_have_begun_the_text(tmp_path):
    model, data = tinyrun.write(tmp_path)
    tokenizer = tinyrun.tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[EOS] $A", special_tokens=[("[EOS]", 2)]
    )
    tokenizer.save_pretrained(model)
    settings = replace(Settings(), steps=1, batch_size=4, eval_every=1)
    arms = ("demos:k=1+lora:rank=1", "prefix:length=2")
    run = comparison.compare(
        model, data, arms=arms, settings=settings, seeds=1, trials=1, out=tmp_path / "run", quiet=True
    )
    shown = {one["title"]: one["queries"] for one in run.results["inside"]["figure"]}
    assert shown["with prefix:length=2"][0] == "[EOS]"
    assert shown[f"with {arms[0]}"] == shown["with prefix:length=2"][1:]
