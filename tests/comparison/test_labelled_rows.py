"""Rows of a classification in the results: answers, probabilities, and which of them are kept."""

import json
import sys

import pytest
import tinyrun

from tunescope.comparison import comparison, examples
from tunescope.errors import UserError
from tunescope.trial import plan, plan_check
from tunescope.trial.open import open_bench
from tunescope.trial.train.settings import Settings


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("labelled")
    model, data = tinyrun.write(root)
    settings = Settings(steps=6, batch_size=8, eval_every=3, patience=3)
    asked = plan_check.check(
        plan.Plan(
            model=model,
            data=data,
            task={"kind": "classification"},
            arms=("zero-shot", "demos:k=1", "lora:rank=2"),
            seeds=(0, 1),
            trials=1,
            beyond=0,
            settings=settings,
        )
    )
    bench = open_bench(asked)
    return bench, comparison.run(asked, root / "run", tinyrun.opened(bench), by_name=True, quiet=True)


def kept(found, run):
    return json.loads((found.folder / "arms" / run["id"] / "test.json").read_text())


def test_every_row_has_every_arm_s_answer_and_the_probabilities_that_its_folder_keeps(done):
    bench, found = done
    shown, rows = found.results["examples"], bench.splits.test
    assert (shown["of"], shown["seeds"]) == (32, [0, 0, 0])
    assert [row["input"] for row in shown["rows"]] == [row["text"] for row in rows]
    assert [row["references"] for row in shown["rows"]] == [[row["label"]] for row in rows]
    apart = 0
    for index, row in enumerate(shown["rows"]):
        for place, arm in enumerate(found.results["arms"]):
            run = arm["runs"][0]
            assert row["outputs"][place] == ("neg", "pos")[int(run["stats"][index][2])]
            assert row["scores"][place] == kept(found, run)["shares"][index]
            assert sum(row["scores"][place].values()) == pytest.approx(1, abs=2e-3)
            assert max(row["scores"][place], key=row["scores"][place].get) == row["outputs"][place]
        apart += len(set(row["outputs"])) > 1
    assert shown["apart"] == apart
    assert not [run for arm in found.results["arms"] for run in arm["runs"] if "shares" in run]
    assert 'id="answers-table"' in (found.folder / "report.html").read_text()


def test_of_more_rows_half_are_spread_evenly_and_the_rest_are_those_on_which_arms_part(done, monkeypatch):
    bench, found = done
    every = {row["row"]: row for row in found.results["examples"]["rows"]}
    apart = [place for place, row in every.items() if len(set(row["outputs"])) > 1]
    monkeypatch.setattr(examples, "SHOWN", 8)
    standings = [type("S", (), {"status": "done", "runs": arm["runs"], "name": arm["name"]}) for arm in
                 found.results["arms"]]  # fmt: skip
    shown = examples.side_by_side(bench, standings)
    places = [row["row"] for row in shown["rows"]]
    lines = list(every)
    even = {lines[at * 32 // 4] for at in range(4)}
    assert places == sorted(places) and len(places) == min(8, len(even | set(apart)))
    assert even <= set(places) and set(places) - even <= set(apart)
    assert all(row["scores"] == [{}, {}, {}] for row in shown["rows"])  # of runs that kept none


def test_a_long_input_is_cut(done, monkeypatch):
    bench, found = done
    monkeypatch.setattr(examples, "LENGTH", 5)
    one = found.results["arms"][0]
    standing = type("S", (), {"status": "done", "runs": one["runs"], "name": one["name"]})
    shown = examples.side_by_side(bench, [standing])
    assert {len(row["input"]) for row in shown["rows"]} == {5}


def test_a_run_shows_itself_in_a_notebook_and_gives_its_table(done, monkeypatch):
    _, found = done
    assert found._repr_html_().count("<tr>") == 1 + 3 and "<script" not in found._repr_html_()
    rows = found.table()
    assert {row["arm"] for row in rows} == {"zero-shot", "demos:k=1", "lora:rank=2"}
    assert found.to("csv").splitlines()[0].split(",") == list(rows[0])
    assert "hu2022lora" in found.to("bibtex") and "tabular" in found.to("latex")
    with pytest.raises(UserError, match=r"--to 'cvs' is not known. Did you mean 'csv'\?"):
        found.to("cvs")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"needs pandas\. Type: pip install pandas"):
        found.to_pandas()


def test_pandas_has_the_same_table(done):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    _, found = done
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["arm"]) == [row["arm"] for row in found.table()]
    assert frame["score"].dtype == float and frame["stored"].dtype == int
