"""The index of runs: a row a run, links that stay in the folder, sorting, and what cannot be read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest
from payloads import HOSTILE, poisoned
from report_example import example
from test_page import Tags

from tunescope import report
from tunescope.errors import UserError
from tunescope.report import index


@pytest.fixture
def folder(tmp_path):
    for name, outcome in {"a/one": "weights needed", "two & three": "context suffices"}.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "results.json").write_text(json.dumps(example(outcome)))
        report.write(example(outcome), tmp_path / name / "report.html")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "results.json").write_text('{"version": 1, "arms": [')
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "results.json").write_text('{"version": 99, "arms": []}')
    return tmp_path


def test_the_seeds_of_a_row_are_those_that_ran_whichever_were_asked_for_before_looks(tmp_path):
    one = example()
    one["protocol"]["seeds"] = [0]
    (tmp_path / "results.json").write_text(json.dumps(one))
    assert [row["seeds"] for row in index.entries(tmp_path)] == [5]


def test_the_time_of_a_row_is_that_of_every_run_once_of_rates_that_lost_too(tmp_path):
    one = example()
    for arm in one["arms"]:
        arm["runs"] = [run | {"seconds": 3.0} for run in arm["runs"]]
        arm["trials"] = [trial | {"seconds": 2.0} for trial in arm.get("trials") or []]
    kept = one["arms"][9]
    kept["trials"][1] |= {"id": kept["runs"][0]["id"], "seconds": 3.0}  # the trial that won is the first seed's run
    kept["trials"][0]["seconds"] = None  # one that diverged
    (tmp_path / "results.json").write_text(json.dumps(one))
    runs, trials = (sum(len(arm[part]) for arm in one["arms"]) for part in ("runs", "trials"))
    assert [row["seconds"] for row in index.entries(tmp_path)] == [3.0 * runs + 2.0 * (trials - 2)]


def test_every_run_has_a_row_by_its_path_and_a_link_that_leads_to_its_page(folder):
    rows = {one["run"]: one for one in index.entries(folder)}
    assert list(rows) == ["a/one", "newer", "torn", "two & three"]
    assert rows["a/one"]["answer"] == "weights needed" and rows["two & three"]["answer"] == "context suffices"
    assert (rows["a/one"]["best"], rows["a/one"]["score"]) == ("full", example()["arms"][9]["score"])
    assert rows["a/one"]["done"] == 10 and rows["a/one"]["arms"] == 13 and rows["a/one"]["seeds"] == 5
    spent = sum(run["seconds"] for arm in example()["arms"] for run in arm["runs"])
    assert rows["a/one"]["seconds"] == pytest.approx(spent)
    html = index.write(folder).read_text("utf-8")
    parsed = Tags(html)
    links = [attrs["href"] for tag, attrs in parsed.tags if tag == "a" and attrs["href"].startswith("./")]
    assert [(folder / unquote(link)).resolve() for link in links] == [
        folder / name / "report.html" for name in ("a/one", "two & three")
    ]
    assert parsed.open == [] and next(attrs["href"] for tag, attrs in parsed.tags if tag == "a") == "#runs"


def test_what_cannot_be_read_is_a_row_with_the_reason(folder):
    rows = {one["run"]: one for one in index.entries(folder)}
    assert "version 99" in rows["newer"]["problem"] and rows["torn"]["problem"]
    (folder / "torn" / "results.json").write_text('{"version": 1, "arms": [{"status": "done", "runs": 7}]}')
    assert "does not hold a run" in {one["run"]: one for one in index.entries(folder)}["torn"]["problem"]
    best = example()["arms"][9]
    told = f"a/one: weights needed; full {best['score']:.3f} (openai-community/gpt2 on reviews.test.jsonl)"
    assert told in list(index.lines(index.entries(folder)))


def test_a_search_is_no_run(folder):
    (folder / "search").mkdir()
    (folder / "search" / "results.json").write_text('{"searches": [], "model": {"name": "m"}}')
    assert "search" not in {one["run"] for one in index.entries(folder)}


def test_a_folder_without_runs_and_another_s_index_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match="There is no folder"):
        index.entries(folder / "no")
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match=r"holds no run: no results\.json"):
        index.write(folder / "empty")
    (folder / "index.html").write_text("<h1>mine</h1>")
    with pytest.raises(UserError, match="is not an index of runs; move it away"):
        index.write(folder)
    (folder / "index.html").unlink()
    path = index.write(folder)
    whole = path.read_bytes()
    path.write_bytes(whole + b"<!-- of yesterday -->")
    assert index.write(folder) == path and path.read_bytes() == whole  # its own is replaced


@pytest.mark.parametrize("poison", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_and_results_stay_text_and_links_stay_inside(poison, tmp_path):
    name = "".join(one for one in poison[:100] if one not in "/\x00\ud800") or "x"
    (tmp_path / name).mkdir()
    (tmp_path / name / "results.json").write_text(json.dumps(poisoned(example(), poison)))
    (tmp_path / name / "report.html").write_text("")
    parsed = Tags(index.html(index.entries(tmp_path), poison))
    assert {tag for tag, _ in parsed.tags} <= {
        *("html", "head", "meta", "title", "style", "body", "a", "header", "p", "main", "section", "h1", "div"),
        *("table", "thead", "tr", "th", "tbody", "td", "b", "span", "footer", "script"),
    }
    assert all(attrs["href"].startswith(("./", "#runs")) for tag, attrs in parsed.tags if tag == "a")
    assert all(":" not in attrs["href"] for tag, attrs in parsed.tags if tag == "a")


PAGE = """
const made = [];
const element = () => {
  const one = { append() {}, addEventListener(name, run) { one.run = run; }, value: "" };
  made.push(one);
  return one;
};
const row = (name, score, lost) => ({ hidden: false, classList: { contains: () => lost },
  cells: [{ textContent: name, dataset: {} }, { textContent: score, dataset: { value: score } }] });
const rows = [row("b", "0.5", false), row("a", "0.9", false), row("c", "", false), row("lost", "", true)];
let order = rows;
const head = (sort) => ({ textContent: sort, dataset: { sort }, at: null, getAttribute() { return this.at; },
  removeAttribute() { this.at = null; }, setAttribute(name, value) { this.at = value; }, replaceChildren() {} });
const heads = [head("text"), head("number")];
const table = { tBodies: [{ rows, append: (...found) => { order = found; } }], tHead: { rows: [{ cells: heads }] },
  parentElement: { before() {} } };
globalThis.document = { getElementById: () => table, createElement: element };
"""
ASKED = """
const [byName, byScore, asked] = made.filter((one) => one.run);
const names = () => order.map((one) => one.cells[0].textContent).join("");
const found = [];
byScore.run(); found.push(names()); byScore.run(); found.push(names());
byName.run(); byName.run(); found.push(names());
asked.value = "0.9"; asked.run(); found.push(rows.filter((one) => !one.hidden).length);
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node to run the page's script with")
def test_runs_are_sorted_by_text_and_number_what_has_none_last_and_found():
    templates = Path(report.__file__).parent / "templates"
    script = "".join((templates / name).read_text("utf-8") for name in ("fields.js", "index.js"))
    done = subprocess.run(["node", "-e", PAGE + script + ASKED], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["abclost", "baclost", "abclost", 1]
