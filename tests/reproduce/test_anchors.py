"""The recipe on a given model and data: what it asks, and that its table is what the sections measured."""

import json

import pytest
import tinyrun

import tunescope as ts
from tunescope.reproduce import anchors
from tunescope.reproducing.recipe import Ask
from tunescope.reproducing.running import reproduce


def test_it_runs_on_a_given_model_and_data_and_its_cells_are_the_measured_numbers(tmp_path):
    model, data = tinyrun.write(tmp_path)
    ask = Ask("anchors", quick=True, model=model, data=data["train"])
    result = reproduce(ask, tmp_path / "run", 1, lambda line: None)
    rows = {row["label"]: row["cells"][0] for row in result["table"]["rows"]}
    outcomes = [unit["outcome"] for unit in result["units"]]
    assert len(outcomes) == 2
    assert rows["accuracy"]["values"] == [one["isolate"]["accuracy"] for one in outcomes]
    assert rows["flow into label words, last layer"]["values"] == [one["flow"]["shares"][-1][0] for one in outcomes]
    cuts = [cut for cut in outcomes[0]["isolate"]["cuts"] if cut["layers"] == 1 and cut["where"] == "last"]
    assert [cut["words"] for cut in cuts] == ["label words", "random words"]
    assert rows["label loyalty, random words cut in the last layer"]["values"][0] == cuts[1]["label_loyalty"]
    assert rows["label loyalty, labels kept"]["values"][1] == outcomes[1]["compress"]["ways"]["labels"]["label_loyalty"]
    json.dumps(result, allow_nan=False)


def test_an_undefined_number_is_no_value_of_its_cell(monkeypatch):
    monkeypatch.setattr(anchors, "_story", lambda: [("AUC", "", lambda one: one["auc"])])
    cells = [row[1][0] for row in anchors.table({}, [({}, {"auc": None}), ({}, {"auc": 0.75})]).rows]
    assert cells[0].values == (0.75,)
    cells = [row[1][0] for row in anchors.table({}, [({}, {"auc": None})]).rows]
    assert cells[0].text == "undefined"


@pytest.mark.parametrize("given", [{}, {"model": "m"}, {"data": "d"}])
def test_it_needs_a_model_and_data(given):
    with pytest.raises(ts.UserError, match="needs --model MODEL and --data FILE"):
        anchors.settings(Ask("anchors", **given))
