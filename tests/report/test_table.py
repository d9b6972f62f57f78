from __future__ import annotations

import copy
import io
import json

import pytest
from report_example import example
from rich.console import Console

from tunescope import report
from tunescope.report import terminal, text

RESULTS = example()


def drawn(results, **kwargs):
    out = io.StringIO()
    Console(file=out, width=160, **kwargs).print(report.table(results))
    return out.getvalue()


def test_a_row_an_arm_with_score_interval_and_difference():
    said = drawn(RESULTS)
    assert "weights needed: accuracy of openai-community/gpt2" in said
    (row,) = [line for line in said.splitlines() if line.strip().startswith("lora-2 ") and "0.002" in line]
    lora = next(arm for arm in RESULTS["arms"] if arm["name"] == "lora-2")
    assert row.split()[:4] == ["lora-2", "0.874", f"{lora['interval'][0]:.3f}", "to"]
    assert "92.2k" in row
    assert row.rstrip().endswith("done")


def test_a_difference_over_fewer_seeds_than_the_best_arm_has_says_so():
    """As after looks: the two that decide have more seeds than the others."""
    results = copy.deepcopy(RESULTS)
    best = results["best"]["arm"]
    (one,) = [pair for pair in results["comparisons"] if {pair["a"], pair["b"]} == {best, "lora-2"} - {None}][:1] or [
        None
    ]
    arms = {arm["name"]: arm for arm in results["arms"]}
    one["seeds"] = len(arms["lora-2"]["runs"])
    assert f"{one['seeds']} seeds)" not in drawn(results)
    more = [run | {"seed": run["seed"] + 100} for run in arms[best]["runs"]]
    arms[best]["runs"] = [*arms[best]["runs"], *more]
    (row,) = [line for line in drawn(results).splitlines() if line.strip().startswith("lora-2 ") and "0.002" in line]
    assert f", {one['seeds']} seeds)" in row


def test_balanced_accuracy_stands_beside_accuracy_and_only_there():
    (row,) = [line for line in drawn(RESULTS).splitlines() if line.strip().startswith("lora-2 ") and "0.002" in line]
    runs = next(arm["runs"] for arm in RESULTS["arms"] if arm["name"] == "lora-2")
    balanced = sum(run["test"]["balanced_accuracy"] for run in runs) / len(runs)
    assert row.split()[5] == f"{balanced:.3f}" != row.split()[1]
    assert "balanced" in drawn(RESULTS)
    results = copy.deepcopy(RESULTS)
    for arm in results["arms"]:
        for run in arm["runs"]:
            del run["test"]["balanced_accuracy"]
    assert "balanced" not in drawn(results)


def test_arms_that_did_not_finish_say_why():
    said = " ".join(drawn(RESULTS).split())
    assert "out of memory: needs 19.2 GiB, the device has 8 GiB" in said
    assert "refused: family 'gpt2' has no label words to anchor on" in said


def test_the_table_is_plain_where_there_is_no_terminal():
    assert "\x1b" not in drawn(RESULTS)
    assert "\x1b" in drawn(RESULTS, force_terminal=True)


def test_control_characters_and_markup_in_names_are_shown_and_not_obeyed():
    results = copy.deepcopy(RESULTS)
    results["arms"][0]["name"] = "\x1b[2J[bold]x[/bold]\u202e"
    said = drawn(results, force_terminal=True, color_system=None)
    assert r"\x1b[2J[bold]x[/bold]\u202e" in said
    assert "\x1b[2J" not in said
    assert "\u202e" not in said


def with_metrics(count):
    """The arms with so many other metrics, and what they forget."""
    results, names = copy.deepcopy(RESULTS), [f"metric_{index}" for index in range(count)]
    results["task"]["also"] = names
    for arm in results["arms"]:
        arm["also"] = {name: {"score": 0.123, "interval": [0.1, 0.15]} for name in names}
        arm["forgetting"] = {"status": "done", "difference": 0.002, "error": 0.003}
    return results


@pytest.mark.parametrize("count", [4, 10])
def test_with_many_metrics_every_name_and_number_is_there_in_a_file(count):
    results = with_metrics(count)
    lines = [line.rstrip() for line in terminal.table(results).splitlines()]
    done = [arm for arm in results["arms"] if arm["status"] == "done"]
    for arm in done:
        (line,) = [line for line in lines if line.strip().startswith(arm["name"] + " ") and line.endswith("done")]
        assert line.count(" 0.123") == count + (f"{arm['score']:.3f}" == "0.123")
    (head,) = [line for line in lines if line.strip().startswith("arm ")]
    assert all(name.replace("_", " ") in head for name in results["task"]["also"])
    assert "…" not in "".join(lines)


def test_names_that_begin_alike_are_told_apart():
    results = copy.deepcopy(RESULTS)
    begin = "prefix:length=2,init_from=noise,positions="
    twins = [f"{begin}{one},{'x' * 25}" for one in ("same", "after", "both")]
    best = results["best"]["arm"]
    old = [best, *[arm["name"] for arm in results["arms"] if arm["name"] != best][:2]]
    told = json.dumps(results)
    for one, other in zip(old, twins, strict=True):
        told = told.replace(json.dumps(one), json.dumps(other))
    lines = terminal.table(json.loads(told)).splitlines()
    names = [line.split()[0] for line in lines if line.strip().startswith("prefix:len")]
    assert len(set(names)) == 3
    assert text.apart(["a" * 40, "a" * 20 + "b" + "a" * 19, "c"], 5) == [
        *("a" * 40, "a" * 20 + "b" + "a" * 19),
        "c",
    ]
    assert text.apart(["abcdefgh", "abcdefgi"], 5) == ["ab…gh", "ab…gi"]
    assert text.apart(["same same", "same same"], 5) == ["sa…me"] * 2
