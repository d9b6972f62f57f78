"""Arms that are not shown as they were typed: a line break in the name, a path, a joiner. Nothing is lost for it."""

from __future__ import annotations

import json

import bash
import pytest
from test_answers import labelled

from tunescope.report import tabular, two_runs
from tunescope.report.answers import answers
from tunescope.report.use import use
from tunescope.report.view import view

NAMES = ["text:text=A\nb:", "text:text=see /etc/passwd/x", "text:text=می\u200cخواهم", "text:text=soft\u00adhyphen"]
OLD = "lora-2"


def called(name, old=OLD):
    """The example, an arm of it under another name; JSON has a line break as two signs."""
    return json.loads(json.dumps(labelled()).replace(json.dumps(old), json.dumps(name)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("old", [OLD, "full"])  # which is the best
def test_rows_have_the_differences_that_the_same_arms_have_under_plain_names(name, old):
    differences = [[row["difference"], row["difference_low"]] for row in tabular.rows(labelled())]
    assert [[row["difference"], row["difference_low"]] for row in tabular.rows(called(name, old))] == differences
    assert any(low is not None for _, low in differences)


@pytest.mark.parametrize("name", NAMES)
def test_its_answers_are_counted_and_its_artifact_is_offered(name):
    plain, found = labelled(), called(name)
    for results in (plain, found):
        for one in results["arms"]:
            one["methods"] = ["lora"]
    plain_view, seen = view(plain), view(found)
    told, expected = answers(found, seen.arms, seen.best_key), answers(plain, plain_view.arms, plain_view.best_key)
    assert [one["grid"] for one in told["grids"]] == [one["grid"] for one in expected["grids"]]
    assert len(told["beside"]) == len(expected["beside"]) == len(told["grids"]) - 1
    assert [arm["place"] for arm in use(found, seen.arms)["arms"]] == [
        arm["place"] for arm in use(plain, plain_view.arms)["arms"]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_beside_itself_has_no_arm_alone(name):
    assert two_runs.two_runs(called(name), called(name)).alone == ([], [])


@pytest.mark.parametrize("name", ["prefix", NAMES[0]])
def test_where_the_best_has_no_artifact_the_one_that_is_best_on_dev_of_those_that_have_is_offered(name):
    """The arms stand by their test scores, which choose nothing."""
    results = called(name, OLD)
    done = [one for one in results["arms"] if one["status"] == "done"]
    for one in done:
        one["methods"] = [] if one["group"] == "none" else ["lora"]
        for run in one["runs"]:
            run["dev"] = 0.9 if one["name"] == name else 0.5
    results["best"] = {"arm": next(one["name"] for one in done if one["group"] == "none"), "path": None}
    seen = view(results)
    first = next(arm for arm in seen.arms if arm["done"] and arm["group"] != "none")
    assert results["arms"][first["index"]]["name"] != name  # by the test score another would be offered
    assert f"--arm={name}" in bash.words(use(results, seen.arms)["predict"])
