from __future__ import annotations

import copy
import io

from report_example import example
from rich.console import Console

from tunescope import report

RESULTS = example()


def drawn(results, **kwargs):
    out = io.StringIO()
    Console(file=out, width=160, **kwargs).print(report.table(results))
    return out.getvalue()


def test_a_row_an_arm_with_score_interval_and_difference():
    text = drawn(RESULTS)
    assert "weights needed: accuracy of openai-community/gpt2" in text
    (row,) = [line for line in text.splitlines() if line.strip().startswith("lora-2 ") and "0.002" in line]
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
    text = " ".join(drawn(RESULTS).split())
    assert "out of memory: needs 19.2 GiB, the device has 8 GiB" in text
    assert "refused: family 'gpt2' has no label words to anchor on" in text


def test_the_table_is_plain_where_there_is_no_terminal():
    assert "\x1b" not in drawn(RESULTS)
    assert "\x1b" in drawn(RESULTS, force_terminal=True)


def test_control_characters_and_markup_in_names_are_shown_and_not_obeyed():
    results = copy.deepcopy(RESULTS)
    results["arms"][0]["name"] = "\x1b[2J[bold]x[/bold]\u202e"
    text = drawn(results, force_terminal=True, color_system=None)
    assert r"\x1b[2J[bold]x[/bold]\u202e" in text
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
