"""The page of a task with written answers: outputs side by side, whatever they hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from payloads import HOSTILE, poisoned
from report_example import example
from test_page import Tags

from tunescope import report

ARMS = ("zero-shot", "lora-2")


def written(rows=3, of=3):
    """The example's results as of a generation task."""
    results = example()
    results["task"] |= {"kind": "generation", "metric": "bleu", "also": ["nist", "ter"], "chance": None}
    for arm in results["arms"]:
        arm["also"] = {"nist": {"score": 8.5123, "interval": [8.4, 8.6]}, "ter": {"score": 41.04, "interval": [40, 42]}}
        for run in arm.get("runs") or []:
            run["stats"], run["test"] = [], {"bleu": 66.1}
    for pair in results["comparisons"]:
        pair["also"] = {"nist": {"difference": -0.25, "interval": [-0.31, -0.2]}}
    results["examples"] = {
        "of": of,
        "arms": list(ARMS),
        "seeds": [0, 3],
        "rows": [
            {
                "row": 10 + at,
                "input": f"name : The Eagle {at}",
                "references": [f"The Eagle is a pub {at}.", "A pub, The Eagle."],
                "outputs": ["", f"The Eagle pub {at}"],
                "scores": [{"bleu": 12.34 + at, "nist": 3.456, "ter": 50.0} for _ in ARMS],
            }
            for at in range(rows)
        ],
    }
    return results


def cells(html):
    part = html[html.index('<table id="outputs-table">') :]
    return " ".join(" ".join(Tags(part[: part.index("</table>") + 8]).text).split())


def test_every_arms_output_stands_beside_the_input_its_references_and_its_own_scores():
    html = report.html(written())
    assert Tags(html).open == []
    table = html[html.index('<table id="outputs-table">') :].partition("</table>")[0]
    assert table.count("<tbody>") == 3
    assert (
        "name : The Eagle 1 line 11 The Eagle is a pub 1. A pub, The Eagle. zero-shot nothing 13.3 3.46 50.0 "
        "lora-2 The Eagle pub 1 13.3 3.46 50.0"
    ) in cells(html)
    assert "All 3 test rows. Every arm at its first seed (lora-2 at seed 3)" in " ".join(html.split())


def test_paths_and_joiners_of_the_data_stay_as_they_are():
    results = written()
    said = "see /usr/local/bin/x, C:\\Users\\me and m\u200cn \u202e"
    results["examples"]["rows"][0] |= {"input": said, "references": [said], "outputs": [said, said]}
    results["examples"]["arms"][0] = "soft:artifact=/home/me/x"
    html = report.html(results)
    assert "/home/me" not in html  # an arm's name is the user's machine, not his data
    assert html.count("see /usr/local/bin/x, C:\\Users\\me and m\u200cn \\u202e") == 4


def test_rows_that_are_left_out_are_counted():
    assert "3 of 1,234 test rows, spread evenly." in report.html(written(of=1234))


def test_other_metrics_have_columns_with_intervals_and_differences_and_tell_when_lower_is_better():
    text = " ".join(" ".join(Tags(report.html(written())).text).split())
    assert "NIST TER ↓" in text
    assert "8.51 8.40 to 8.60 −0.25 (−0.31 to −0.20)" in text
    assert "41.0 40.0 to 42.0" in text


@pytest.mark.parametrize("poison", HOSTILE)
def test_what_users_and_models_wrote_is_text_and_never_html(poison):
    results = written()
    results["examples"] = poisoned(results["examples"], poison)
    parsed = Tags(report.html(results))
    clean = Tags(report.html(written()))
    assert [tag for tag, _ in parsed.tags] != []
    assert {tag for tag, _ in parsed.tags} <= {tag for tag, _ in clean.tags}
    assert parsed.open == []
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on")]


def test_a_page_of_labels_has_no_such_part():
    html = report.html(example())
    assert 'id="outputs-table"' not in html
    assert report.html(example() | {"examples": None}) == html


def test_search_and_sort_read_what_the_table_says():
    html = report.html(written())
    assert re.findall(r'data-metric="([^"]*)"', html) == ["BLEU", "NIST", "TER ↓"]
    values = re.findall(
        r'<td class="n" data-name="[^"]*" data-value="([^"]*)">', html[html.index('<table id="outputs-table">') :]
    )
    assert values[:6] == ["12.34", "3.456", "50.0"] * 2


def test_an_output_without_a_score_has_no_number_to_sort_by():
    results = written()
    results["examples"]["rows"][0]["scores"][0] = {}
    html = report.html(results)
    values = re.findall(
        r'<td class="n" data-name="[^"]*" data-value="([^"]*)">([^<]*)<',
        html[html.index('<table id="outputs-table">') :],
    )
    assert values[:3] == [("", "–")] * 3 and values[3][0] == "12.34"


PAGE = """
const cell = (text, value) => ({ textContent: text, dataset: { value } });
const body = (given, said, arm, values) => ({
  hidden: false,
  textContent: [arm, given, said, ...values].join(" "),
  rows: [{
    querySelector: () => cell(arm),
    querySelectorAll: (asked) => asked === "[data-value]" ? values.map((one) => cell(one, one)) : [],
  }],
  querySelectorAll: () => [cell(given), cell(said)],
});
const bodies = [body("a pub", "The Eagle", "prefix 7", ["3"]), body("a bar", "Prefix house", "prefix 7", [""]),
  body("an inn", "seven", "prefix 7", ["0"])];
const made = [];
const element = () => {
  const one = { append() {}, addEventListener(name, run) { one.run = run; }, value: "" };
  made.push(one);
  return one;
};
let order = bodies;
const table = { tBodies: bodies, tHead: { querySelectorAll: () => [{ dataset: { metric: "BLEU" } }] },
  append: (...found) => { order = found; }, parentElement: { before() {} } };
globalThis.document = { getElementById: () => table, createElement: element };
"""
ASKED = """
const [search, by, of] = made.filter((one) => one.run); // in the order in which they are made
search.value = "prefix"; search.run();
const found = bodies.filter((one) => !one.hidden).map((one) => bodies.indexOf(one));
search.value = "7"; search.run();
const digits = bodies.filter((one) => !one.hidden).length;
of.value = "0"; by.value = "1"; by.run();
const lowest = order.map((one) => bodies.indexOf(one));
by.value = "2"; by.run();
console.log(JSON.stringify([found, digits, lowest, order.map((one) => bodies.indexOf(one))]));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node to run the page's script with")
def test_find_reads_inputs_references_and_outputs_alone_and_no_score_comes_last():
    folder = Path(report.__file__).parent / "templates"
    script = (folder / "fields.js").read_text("utf-8") + (folder / "outputs.js").read_text("utf-8")
    done = subprocess.run(["node", "-e", PAGE + script + ASKED], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[1], 0, [2, 0, 1], [0, 2, 1]]


MARKED = """
const said = (...texts) => ({ hidden: false, querySelectorAll: () => [], rows: texts.map((text, at) => {
  const cell = { textContent: text, replaceChildren(...parts) { this.parts = parts; } };
  return { cell, querySelector: (asked) => (asked === ".arm-name" ? { textContent: "ab"[at] } : cell) };
}) });
const bodies = [said("a pub by the river", "the pub by a  river"), said("same words", "same words")];
const made = [];
const element = (name) => {
  const one = { name, append() {}, addEventListener(event, run) { one.run = run; }, value: "" };
  made.push(one);
  return one;
};
const table = { tBodies: bodies, tHead: { querySelectorAll: () => [] }, append() {}, parentElement: { before() {} } };
globalThis.document = { getElementById: () => table, createElement: element };
"""
ASKED_MARKED = """
const base = made.filter((one) => one.run)[3];
const show = made.filter((one) => one.run)[4];
base.value = "1"; base.run();
const parts = bodies.map((one) => one.rows.map((row) => row.cell.parts.map(
  (part) => (part.name === "mark" ? `[${part.textContent}]` : part)).join("")));
show.value = "1"; show.run();
console.log(JSON.stringify([parts, bodies.map((one) => one.hidden)]));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node to run the page's script with")
def test_words_that_another_arm_has_not_in_that_order_are_marked_and_no_letter_is_lost():
    folder = Path(report.__file__).parent / "templates"
    script = (folder / "fields.js").read_text("utf-8") + (folder / "outputs.js").read_text("utf-8")
    done = subprocess.run(["node", "-e", MARKED + script + ASKED_MARKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (first, second), hidden = json.loads(done.stdout)
    assert second == ["same words", "same words"] and hidden == [False, True]
    assert first == ["a pub by the river", "[the] pub by [a]  river"]


def test_the_terminals_table_has_the_other_metrics_too():
    table = report.table(written())
    assert [column.header for column in table.columns][1:5] == ["score", "95 % interval", "NIST", "TER ↓"]
