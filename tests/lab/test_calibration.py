"""Truths by hand, a case from a pilot and a long run as they are kept, and counts of what was decided."""

from dataclasses import replace

import pytest

from tunescope.lab.worlds import bases
from tunescope.lab.worlds.base_table import base
from tunescope.lab.worlds.calibration import NEITHER, SETTLED_ON, Case, bins, case, groups, judged, truth, whole_said
from tunescope.lab.worlds.questions import question, questions
from tunescope.methods.text_form import parse
from tunescope.report.verdict.forecast import NEEDED, SUFFICES, Shares
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.piece import came_of
from tunescope.reproduce.recipes import learning_rates, verdict_calibration
from tunescope.trial.budget import count

ONE = Case(0, "gpt2", 1, "named", Shares(1.0, 1.0, 1), SUFFICES, 1.0, 1.0)


@pytest.mark.parametrize(
    ("context", "delta", "expected"),
    [
        (0.95, 0.99, "context suffices"),
        (0.90, 0.99, "weights needed"),
        (0.99, 0.20, "context suffices"),
        (0.49, 0.49, "neither learns it"),
        (0.10, 0.51, "weights needed"),
    ],
)
def test_the_truth_of_a_world_by_hand(context, delta, expected):
    assert truth(context, delta) == expected


def arm(name, group, score):
    run = {"seed": 0, "dev": score, "test": {"accuracy": score}, "curve": [{"step": 1, "loss": 1.0, "dev": score}]}
    return {
        "name": name,
        "group": group,
        "status": "done",
        "score": score,
        "interval": [score, score],
        "trials": [],
    } | {"runs": [run]}


def outcome(untrained, context, delta, long):
    arms = [arm("zero-shot", "none", untrained), arm("prefix", "context", context), arm("lora", "delta", delta)]
    return {"pilot": {"task": {"metric": "accuracy", "chance": 0.5}, "arms": arms}, "long": long}


def ran(group, dev, score):
    return {"arm": "x", "group": group, "dev": dev, "score": score}


def test_a_case_has_shares_of_the_way_from_chance_and_the_context_that_dev_chooses():
    long = [ran("context", 0.7, 0.9), ran("context", 0.8, 0.6), ran("delta", 0.9, 0.95)]
    found = case(15, outcome(0.55, 0.75, 0.8, long))
    assert (found.pilot.context, found.pilot.delta) == pytest.approx((0.5, 0.6))
    assert (found.context, found.delta) == pytest.approx((0.2, 0.9))
    assert (found.architecture, found.kind, found.truth) == ("gpt2", "unnamed", NEEDED)


def test_what_trains_nothing_is_a_context_and_one_that_was_good_enough_needs_no_delta():
    found = case(15, outcome(0.9, 0.5, 0.8, [ran("context", 0.9, 0.99)]))
    assert (found.pilot.context, found.delta, found.truth) == (pytest.approx(0.8), 1.0, SUFFICES)
    assert found.said == SUFFICES


def test_a_pilot_without_a_context_is_no_case():
    lost = outcome(0.5, 0.5, 0.5, [])
    lost["pilot"]["arms"][1] |= {"status": "diverged", "runs": [], "score": None, "interval": None}
    assert case(15, lost) is None


def test_what_was_decided_and_right_is_counted_and_a_decision_where_nobody_learned_is_wrong():
    far = Shares(0.1, 0.9, 1)
    known = [
        ONE,
        replace(ONE, pilot=Shares(0.7, 0.9, 1)),
        replace(ONE, pilot=far, truth=NEEDED),
        replace(ONE, pilot=far, truth=NEITHER),
        replace(ONE, pilot=Shares(0.1, 0.1, 1), truth=NEITHER),
    ]
    assert judged([(one.said, one.truth) for one in known]) == {
        "worlds": 5,
        "learned": 3,
        "decided": 3,
        "right": 2,
        "share_right": pytest.approx(2 / 3),
        "share_undecided": pytest.approx(1 / 3),
    }


def test_groups_are_all_and_each_architecture_kind_and_truth():
    other = replace(ONE, architecture="t5", kind="far")
    found = dict(groups([ONE, ONE, other]))
    assert {name: len(some) for name, some in found.items()} == {
        "all": 3,
        "not looked at before": 0,
        "architecture: gpt2": 2,
        "architecture: t5": 1,
        "kind: named": 2,
        "kind: far": 1,
        "truth: context suffices": 3,
    }


def test_worlds_are_put_together_by_what_their_pilots_showed() -> None:
    pilots = [(1.0, 1.0, 9), (0.1, 0.1, 1), (0.7, 0.9, 1), (0.1, 0.9, 4), (0.1, 0.9, 3), (0.6, 0.2, 1)]
    known = [
        replace(ONE, pilot=Shares(*pilot), truth=SUFFICES if at % 2 else NEEDED) for at, pilot in enumerate(pilots)
    ]
    assert bins(known) == {
        "the context is close: context suffices": [False, True],
        "close, but neither is half of the way": [True],
        "behind, but on its way or not far": [False],
        "far behind, more than 3 layers or no decoder": [True],
        "far behind, a decoder of 3 layers or fewer: weights needed": [False],
    }


def test_the_recipe_joins_a_world_s_two_runs_and_tells_the_rates_that_long_runs_chose() -> None:
    pilot = {"pilot": outcome(0.55, 0.95, 0.95, [])["pilot"]}
    long = [ran("context", 0.9, 0.95) | {"learning_rate": 0.1}, ran("delta", 0.9, 0.95) | {"learning_rate": 0.01}]
    low = [ran("context", 0.9, 0.2) | {"learning_rate": 0.7}]
    found = [({"world": 15, "run": "long"}, {"long": long}), ({"world": 15, "run": "pilot"}, pilot)]
    found += [({"world": 16, "run": "long"}, {"long": low}), ({"world": 16, "run": "pilot"}, pilot)]
    table = verdict_calibration.table({}, found)
    assert [cell.text for cell in table.rows[0][1][:4]] == ["2", "2", "2", "1"]
    assert table.rows[0][1][4].text == "0.500 [0.095, 0.905]"  # Wilson's for 1 of 2
    assert table.notes == ["Rates that the long runs of x chose: 0.01 1 times, 0.1 1 times."]
    assert "1 of 2" in table.pictures["verdict-calibration.svg"]


def test_whole_comparisons_stand_beside_the_pilots_of_the_same_worlds() -> None:
    pilot = {"pilot": outcome(0.55, 0.95, 0.95, [])["pilot"], "cpu_seconds": 12.0}
    whole = {"whole": {"verdict": "alike", "arms": [{"runs": [{}] * 3}, {"runs": [{}] * 6}]}, "cpu_seconds": 96.0}
    long = {
        "long": [ran("context", 0.9, 0.95) | {"learning_rate": 0.1}, ran("delta", 0.9, 0.95) | {"learning_rate": 1}]
    }
    found = [({"world": 22, "run": run}, one) for run, one in {"pilot": pilot, "long": long, "whole": whole}.items()]
    found += [({"world": 23, "run": run}, one) for run, one in {"pilot": pilot, "long": long}.items()]
    table = verdict_calibration.table({}, found)
    rows = dict(table.rows)
    assert [cell.text for cell in rows["whole comparisons"][:4]] == ["1", "1", "1", "1"]
    assert [cell.text for cell in rows["pilots of the same"][:4]] == ["1", "1", "1", "1"]
    assert table.notes[-1].startswith("A pilot took 0.12 of the CPU")
    assert [(one.get("whole"), one.get("seeds")) for one in table.numbers["worlds"]] == [("alike", 6), (None, None)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("alike", "context suffices"),
        ("context suffices", "context suffices"),
        ("weights needed", "weights needed"),
        ("neither, at this budget", "neither learns it"),
        ("no verdict", "no verdict"),
    ],
)
def test_what_a_whole_comparison_says_of_a_world(answer: str, expected: str) -> None:
    assert whole_said(answer) == expected


def test_whole_comparisons_are_of_every_architecture() -> None:
    chosen = [question(one) for one in verdict_calibration.COMPARED]
    assert {one.architecture for one in chosen} == {one.architecture for one in questions()}


def test_a_rate_s_cell_is_the_mean_share_over_worlds_and_the_first_is_counted() -> None:
    found = [
        ({"world": 6, "arm": "lora"}, {"chance": 0.5, "tried": [[0.001, 0.75], [0.01, 1.0], [0.1, None]]}),
        ({"world": 7, "arm": "lora"}, {"chance": 0.0, "tried": [[0.001, 0.1], [0.01, 0.4], [0.1, 0.5]]}),
        ({"world": 7, "arm": "bias"}, {"chance": 0.0, "tried": [], "reason": "no biases"}),
    ]
    said = ["world 6, arm lora", "world 7, arm lora", "world 7, arm bias: no biases"]
    assert [came_of(unit, outcome) for unit, outcome in found] == said  # of a piece as it ends
    table = learning_rates.table({"arms": ["lora", "bias"]}, found)
    row = dict(zip(table.columns, table.rows[0][1], strict=True))
    assert [row[rate].mean for rate in ("0.001", "0.01", "0.1")] == pytest.approx([0.3, 0.7, 0.25])
    assert row["first at"].text == "0.01 ×1, 0.1 ×1" and row["1"].mean is None
    assert table.notes[1:] == ["bias in world 7: no biases"]


def test_worlds_that_nothing_was_settled_on_come_first() -> None:
    settings = verdict_calibration.settings(Ask("verdict-calibration"))
    short = [unit["world"] for unit in verdict_calibration.units(settings) if unit["run"] != "whole"]
    settled = [world in SETTLED_ON for world in short]
    assert settled == sorted(settled) and set(short) == {one.number for one in questions()}


def test_the_undecided_are_told_of_the_worlds_that_somebody_learned() -> None:
    counts = {"worlds": 9, "learned": 4, "decided": 5, "right": 3}
    cells = verdict_calibration._row(counts | {"share_right": 3 / 5, "share_undecided": 1 / 4})
    assert [cell.text.partition(" ")[0] for cell in cells] == ["9", "4", "5", "3", "0.600", "0.250"]


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_the_budget_is_a_prefix_at_every_attention_of_the_model(kind: str, tmp_path, monkeypatch) -> None:
    one = next(one for one in questions() if base(one.model).body.kind == kind)
    monkeypatch.setattr(bases, "pretrained", lambda made: tmp_path)
    plan = verdict_calibration.question({"steps": 10, "batch_size": 2, "prefix": 20}, one.number, tmp_path)
    stored = count(base(one.model).new(), parse("prefix:length=20,init_from=noise")).stored
    assert plan.budgets == (stored,)


def test_a_world_where_nothing_was_learned_has_no_first_rate() -> None:
    found = [({"world": 6, "arm": "lora"}, {"chance": 0.5, "tried": [[0.001, 0.5], [0.01, 0.4]]})]
    table = learning_rates.table({"arms": ["lora"]}, found)
    assert table.rows[0][1][-1].text == ""
