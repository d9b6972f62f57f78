"""Two runs beside each other: differences against those of numpy, rows that changed, and hostile text."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from payloads import HOSTILE, poisoned
from test_answers import labelled
from test_outputs import written
from test_page import Tags

from tunescope.report import terminal, two_runs
from tunescope.report.verdict import stats


def other():
    """The same with ten answers of lora-2 turned, at its first seed, another budget and one arm less."""
    results = labelled()
    (arm,) = [one for one in results["arms"] if one["name"] == "lora-2"]
    for row in arm["runs"][0]["stats"][:100:10]:
        row[0], row[2] = 1 - row[0], 1 - row[2]
    place = results["examples"]["arms"].index("lora-2")
    for row in results["examples"]["rows"][:10]:
        row["outputs"][place] = {"negative": "positive", "positive": "negative"}[row["outputs"][place]]
    arm["score"] = float(np.mean([np.mean([row[0] for row in run["stats"]]) for run in arm["runs"]]))
    results["arms"] = [one for one in results["arms"] if one["name"] != "bias"]
    results["protocol"]["budget"] = 4_000
    return results


def test_scores_differences_and_answers_that_changed_are_counted():
    a, b = labelled(), other()
    found = two_runs.two_runs(a, b, ("old", "new"))
    (arm,) = [one for one in found.arms if one["name"] == "lora-2"]
    runs = [next(one for one in run["arms"] if one["name"] == "lora-2")["runs"] for run in (a, b)]
    before, after = (np.array(one[0]["stats"]) for one in runs)
    assert arm["better"] == ((after[:, 0] == 1) & (before[:, 0] == 0)).sum()
    assert arm["worse"] == ((after[:, 0] == 0) & (before[:, 0] == 1)).sum()
    assert arm["better"] + arm["worse"] == 10 and arm["other"] == 0
    means = [np.mean([np.array(run["stats"])[:, 0].mean() for run in one]) for one in runs]
    assert arm["difference"].replace("−", "-") == f"{means[1] - means[0]:+.3f}"
    gap = stats.paired(stats.by_seed(runs[1]), stats.by_seed(runs[0]), stats.scorer("accuracy"))
    assert arm["gap"].replace("−", "-") == f"{gap.low:+.3f} to {gap.high:+.3f}"
    assert found.alone == (["bias"], [])
    assert ("protocol: budget", "98,304", "4,000") in found.facts
    assert "model" not in {what.partition(":")[0] for what, _, _ in found.facts}


def test_runs_of_which_one_ignores_case_are_not_paired():
    a, b = labelled(), labelled()
    b["task"]["compared"] = "case ignored"
    found = two_runs.two_runs(a, b)
    assert all(not arm["gap"] for arm in found.arms) and any("by the same metric" in note for note in found.notes)
    assert all(arm["gap"] for arm in two_runs.two_runs(b, b).arms)


def test_a_difference_over_some_of_the_seeds_that_the_scores_are_over_is_told():
    a, b = labelled(), labelled()
    for results, kept in ((a, slice(0, 2)), (b, slice(1, 4))):
        (arm,) = [one for one in results["arms"] if one["name"] == "lora-2"]
        arm["runs"] = arm["runs"][kept]
        for run in arm["runs"]:
            right = 0 if run["seed"] != arm["runs"][-1]["seed"] else 1  # the last of each run has every row right
            run["stats"] = [[right, row[1], row[1] if right else 1 - row[1]] for row in run["stats"]]
        arm["score"] = 1 / len(arm["runs"])
    shared = next(one["runs"] for one in b["arms"] if one["name"] == "lora-2")[0]["seed"]
    found = two_runs.two_runs(a, b)
    (arm,) = [one for one in found.arms if one["name"] == "lora-2"]
    assert arm["shown"] == ["0.500", "0.333"] and arm["difference"] == "−1.000"
    told = f"lora-2: the difference is over seed {shared} of both runs, and each score over all seeds of its own."
    assert [note for note in found.notes if "difference is over" in note] == [told]
    assert f"note: {told}" in list(two_runs.lines(found)) and told in " ".join(Tags(two_runs.html(found)).text)


@pytest.mark.parametrize(
    ("shared", "told"), [(0, "share no seed of lora-2: the dif"), (1, "share one seed of lora-2: the int")]
)
def test_arms_of_both_runs_that_share_no_seed_or_one_are_named(shared, told):
    a, b = labelled(), labelled()
    (arm,) = [one for one in b["arms"] if one["name"] == "lora-2"]
    arm["runs"] = [run | {"seed": run["seed"] + 100 * (at >= shared)} for at, run in enumerate(arm["runs"])]
    assert any(told in note for note in two_runs.two_runs(a, b).notes)
    assert not any("The runs share" in note for note in two_runs.two_runs(a, a).notes)
    b["data"]["test"]["rows"] += 1  # other test rows, of which another note says that nothing has an interval
    assert not any("The runs share" in note for note in two_runs.two_runs(a, b).notes)


def test_what_is_the_same_whatever_the_seed_is_held_against_every_seed():
    a, b = labelled(), labelled()
    for results, seed in ((a, 0), (b, 100)):
        (arm,) = [one for one in results["arms"] if one["name"] == "lora-2"]
        arm["varies"], arm["runs"] = False, [arm["runs"][0] | {"seed": seed}]
    found = two_runs.two_runs(a, b)
    (arm,) = [one for one in found.arms if one["name"] == "lora-2"]
    assert arm["gap"] and not any("The runs share" in note for note in found.notes)


def test_the_rows_that_changed_are_shown_with_what_was_said_before_and_after():
    a, b = labelled(), other()
    found = two_runs.two_runs(a, b)
    assert [row["row"] for row in found.changed] == [row["row"] for row in a["examples"]["rows"][:10]]
    for row in found.changed:
        (move,) = row["arms"]
        assert move["arm"] == "lora-2" and {move["before"], move["after"]} == {"negative", "positive"}
        assert (move["was"], move["is"]) == (move["before"] in row["references"], move["after"] in row["references"])
    text = " ".join(" ".join(Tags(two_runs.html(found)).text).split())
    assert "10 of 10 rows that both results hold and some arm answers differently." in text


def test_answers_that_are_shown_alike_and_are_not_the_same_have_changed():
    a, b = labelled(), labelled()
    place = a["examples"]["arms"].index("lora-2")
    a["examples"]["rows"][0]["outputs"][place], b["examples"]["rows"][0]["outputs"][place] = "a\x1b", "a\\x1b"
    (row,) = two_runs.two_runs(a, b, ("old", "new")).changed
    (arm,) = row["arms"]
    assert (arm["before"], arm["after"], row["input"]) == ("a\\x1b", "a\\x1b", "review 0 of /usr/bin")


def test_rows_of_one_input_are_one_draw_between_two_runs_too():
    a, b = labelled(), other()
    rows = len(a["arms"][0]["runs"][0]["stats"])
    inputs = [at % 10 for at in range(rows)]  # the rows that changed are of one
    for run in (a, b):
        run["data"]["test"]["inputs"] = inputs
    runs = [next(one for one in run["arms"] if one["name"] == "lora-2")["runs"] for run in (b, a)]
    gap = stats.paired(*map(stats.by_seed, runs), stats.scorer("accuracy"), inputs=inputs)
    (arm,) = [one for one in two_runs.two_runs(a, b).arms if one["name"] == "lora-2"]
    assert arm["gap"].replace("−", "-") == f"{gap.low:+.3f} to {gap.high:+.3f}"
    apart = stats.paired(*map(stats.by_seed, runs), stats.scorer("accuracy"))
    assert f"{gap.low:+.3f}" != f"{apart.low:+.3f}"


def test_scores_of_two_metrics_have_no_difference_and_each_its_own_scale():
    a, b = labelled(), other()
    b["task"]["metric"] = "bleu"
    for arm in b["arms"]:
        arm["score"], arm["interval"] = 27.3, [20.0, 30.0]
    found = two_runs.two_runs(a, b)
    arm = next(one for one in found.arms if one["name"] == "lora-2")
    assert (arm["shown"][1], arm["span"][1], arm["difference"], arm["gap"]) == ("27.3", "20.0 to 30.0", "–", "")
    assert "Scores of two metrics are no more than beside each other: they have no difference." in found.notes
    assert "Test accuracy and BLEU of the arms" in " ".join("".join(Tags(two_runs.html(found)).text).split())


def test_runs_with_themselves_have_no_difference():
    found = two_runs.two_runs(labelled(), labelled())
    assert (found.facts, found.changed, found.alone) == ([], [], ([], []))
    assert {arm["difference"] for arm in found.arms} == {"+0.000"}
    assert {(arm["better"], arm["worse"], arm["other"]) for arm in found.arms} == {(0, 0, 0)}


def test_other_test_rows_have_no_interval_and_no_rows_and_it_is_said():
    b = other()
    b["data"]["test"]["sha256"] = "00" * 32
    found = two_runs.two_runs(labelled(), b)
    assert found.changed == [] and {arm["gap"] for arm in found.arms} == {""}
    assert {arm["better"] for arm in found.arms} == {None}
    assert any("not tested on the same rows" in note for note in found.notes)
    (arm,) = [one for one in found.arms if one["name"] == "full"]
    assert arm["difference"] == "+0.000"


def cut_out(results, rows):
    """The same where the test rows were cut out of the training file."""
    results["data"]["test"]["sha256"] = results["data"]["train"]["sha256"]
    if rows:
        results["data"]["test"]["cut"] = rows
    return results


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [("ab" * 32, "ab" * 32, True), ("ab" * 32, "cd" * 32, False), ("ab" * 32, None, False), (None, None, False)],
)
def test_rows_cut_out_of_one_training_file_are_the_same_where_their_own_hash_is(first, second, same):
    found = two_runs.two_runs(cut_out(labelled(), first), cut_out(other(), second))
    assert bool(found.changed) == same
    assert {bool(arm["gap"]) for arm in found.arms} == {same}
    assert {arm["better"] is not None for arm in found.arms} == {same}
    assert any("not tested on the same rows" in note for note in found.notes) == (not same)
    (told,) = [one[1:] for one in found.facts if one[0] == "data: test"] or [("", "")]
    assert [side.endswith(f", cut {one[:12]}") for side, one in zip(told, (first, second), strict=True) if one] == [
        first != second for one in (first, second) if one
    ]


def test_another_model_and_runs_without_an_arm_in_common_are_told():
    b = other()
    b["model"]["fingerprint"] = "aa" * 32
    for arm in b["arms"]:
        arm["name"], arm["spec"] = f"my {arm['name']}", f"my {arm['spec']}"
    found = two_runs.two_runs(labelled(), b)
    assert found.arms == [] and "The models have other weights." in found.notes
    assert "No arm that finished is in both runs." in found.notes
    assert two_runs.html(found)


def test_an_arm_of_another_name_and_the_same_spec_is_the_same_arm():
    b = labelled()
    for arm in b["arms"]:
        arm["name"] = "mine" if arm["spec"] == "lora:rank=2" else arm["name"]
    b["examples"]["arms"] = ["mine" if name == "lora-2" else name for name in b["examples"]["arms"]]
    found = two_runs.two_runs(labelled(), b)
    assert "lora-2" in {arm["name"] for arm in found.arms} and found.changed == []


def test_an_arm_s_own_name_comes_before_another_s_spec_and_two_methods_of_one_name_are_told():
    a, b = labelled(), labelled()
    for run, names in ((a, ("lora @ 128", "lora @ 160")), (b, ("lora @ 160", "lora @ 200"))):
        some = [one for one in run["arms"] if one["status"] == "done" and one["group"] == "delta"][:2]
        for one, name in zip(some, names, strict=True):
            one |= {"name": name, "spec": "lora:rank=1"}
        run["arms"] = some
    found = two_runs.two_runs(a, b)
    assert [one["name"] for one in found.arms] == ["lora @ 128", "lora @ 160"] and found.alone == ([], [])
    pairs = two_runs._shared(a, b)
    assert [(one["name"], other["name"]) for one, other in pairs] == [
        ("lora @ 128", "lora @ 200"),
        ("lora @ 160", "lora @ 160"),
    ]
    assert not [fact for fact in found.facts if fact[0].startswith("arm ")]
    b["arms"][0]["spec"] = "adapter:bottleneck=8"
    told = [fact for fact in two_runs.two_runs(a, b).facts if fact[0].startswith("arm ")]
    assert told == [("arm lora @ 160", "lora:rank=1", "adapter:bottleneck=8")]


def test_what_arms_wrote_is_compared_row_by_row():
    a, b = written(), written()
    b["examples"]["rows"][1]["outputs"][1] = "Another pub"
    found = two_runs.two_runs(a, b)
    (row,) = found.changed
    assert row["row"] == 11 and [(one["before"], one["after"]) for one in row["arms"]] == [
        ("The Eagle pub 1", "Another pub")
    ]


@pytest.mark.parametrize("poison", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_adds_no_tag(poison):
    clean = two_runs.html(two_runs.two_runs(labelled(), other()))
    a, b = poisoned(labelled(), poison), poisoned(other(), poison)
    b["examples"]["rows"][0]["outputs"] = ["x"] * len(b["examples"]["arms"])
    parsed = Tags(two_runs.html(two_runs.two_runs(a, b, (poison, poison))))
    assert {tag for tag, _ in parsed.tags} <= {tag for tag, _ in Tags(clean).tags} and parsed.open == []
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on") or key == "style"]


def test_equal_runs_give_equal_bytes_and_are_left_as_they_were():
    a, b = labelled(), other()
    before = copy.deepcopy((a, b))
    assert two_runs.html(two_runs.two_runs(a, b)) == two_runs.html(two_runs.two_runs(*copy.deepcopy((a, b))))
    assert (a, b) == before


def test_columns_of_runs_whose_names_begin_alike_are_told_apart():
    names = ("SmolLM2-135M-sst2-800-0a1b2c3d", "SmolLM2-135M-sst2-800-4e5f6a7b")
    table = two_runs.table(two_runs.two_runs(labelled(), other(), names))
    lines = terminal.printed(table, whole=True).splitlines()
    (head,) = [line for line in lines if line.strip().startswith("arm ")]
    assert "0a1b2c3d" in head
    assert "4e5f6a7b" in head
