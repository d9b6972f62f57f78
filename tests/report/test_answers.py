"""The part of the page on labels answered: confusions, two arms beside each other, rows, and how they are found."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from payloads import HOSTILE, poisoned
from report_example import example
from test_page import Tags

from tunescope import report
from tunescope.report.answers import answers
from tunescope.report.view import view


def labelled():
    """The example's results with rows, as a classification writes them: labels, answers, probabilities."""
    results = example()
    arms = [arm for arm in results["arms"] if arm["status"] == "done"]
    names, given = ["negative", "positive"], [[int(row[2]) for row in arm["runs"][0]["stats"]] for arm in arms]
    results["examples"] = {
        "of": 400,
        "apart": sum(len(set(row)) > 1 for row in zip(*given, strict=True)),
        "arms": [arm["name"] for arm in arms],
        "seeds": [0] * len(arms),
        "rows": [
            {
                "row": index + 1,
                "input": f"review {index} of /usr/bin",
                "references": [names[int(arms[0]["runs"][0]["stats"][index][1])]],
                "outputs": [names[own[index]] for own in given],
                "scores": [{names[own[index]]: 0.75, names[1 - own[index]]: 0.25} for own in given],
            }
            for index in range(0, 400, 10)
        ],
    }
    return results


def found(results):
    seen = view(results)
    return answers(results, seen.arms, seen.best_key)


def test_the_confusions_are_counts_over_all_seeds_in_each_label_s_row():
    results = labelled()
    for raw, shown in ((arm, one) for one in found(results)["grids"] for arm in results["arms"]):
        if raw["name"] != shown["arm"]:
            continue
        counts = np.zeros((2, 2), dtype=int)
        for run in raw["runs"]:
            np.add.at(counts, tuple(np.array(run["stats"], dtype=int)[:, 1:].T), 1)
        assert [[cell["count"] for cell in row["cells"]] for row in shown["grid"]] == counts.tolist()
        assert [row["cells"][0]["of"] for row in shown["grid"]] == counts.sum(1).tolist()
        share = 100 * counts[0, 1] / counts[0].sum()
        assert abs(float(shown["grid"][0]["cells"][1]["shown"]) - share) <= 0.5


def test_many_labels_have_their_commonest_confusions_listed():
    results = labelled()
    results["task"]["labels"] = [f"label-{i}" for i in range(30)]
    for one in found(results)["grids"]:
        assert one["grid"] is None
        counts = [cell["count"] for cell in one["list"]]
        assert counts == sorted(counts, reverse=True) and {cell["label"] for cell in one["list"]} <= {
            "label-0",
            "label-1",
        }


def test_two_arms_are_counted_row_by_row_at_their_first_seed():
    results = labelled()
    by_name = {arm["name"]: np.array(arm["runs"][0]["stats"]) for arm in results["arms"] if arm["runs"]}
    best = by_name["full"]
    for one in found(results)["beside"]:
        own = by_name[one["arm"]]
        own_right, best_right = own[:, 0] == 1, own[:, 1] == best[:, 2]
        assert one["both"] == (own_right & best_right).sum()
        assert one["this"] == (own_right & ~best_right).sum()
        assert one["best"] == (~own_right & best_right).sum()
        assert one["neither"] == (~own_right & ~best_right).sum()
        assert one["apart"] == (own[:, 2] != best[:, 2]).sum()


def test_a_row_shows_its_arms_by_what_they_answered_the_right_ones_first():
    results = labelled()
    shown, given = found(results)["rows"]["rows"], results["examples"]["rows"]
    assert len(shown) == len(given) == 40
    for one, raw in zip(shown, given, strict=True):
        assert one["input"] == raw["input"]  # a path in it is data
        told = {arm["arm"]: group["label"] for group in one["answers"] for arm in group["arms"]}
        assert told == dict(zip(results["examples"]["arms"], raw["outputs"], strict=True))
        right = [group["is_right"] for group in one["answers"]]
        assert right == sorted(right, reverse=True)
        assert one["right"].split() == [str(int(answer == raw["references"][0])) for answer in raw["outputs"]]


def test_the_page_says_what_part_of_the_rows_it_holds_and_old_results_how_they_get_theirs():
    results = labelled()
    text = " ".join(" ".join(Tags(report.html(results)).text).split())
    apart = results["examples"]["apart"]
    assert "40 of 400 test rows: some spread evenly, and more of those on which the arms do not agree; they" in text
    assert f"do not agree on {apart}." in text and "review 390 of /usr/bin" in text
    old = " ".join(" ".join(Tags(report.html(example())).text).split())
    assert "Answered differently" in old and "tunescope resume RUN adds them" in old


def test_tasks_without_labels_and_arms_without_rows_have_no_such_part():
    results = labelled()
    assert found(results | {"task": {**results["task"], "metric": "bleu"}}) is None
    assert found(results | {"task": {**results["task"], "labels": []}}) is None
    for arm in results["arms"]:
        for run in arm["runs"]:
            run["stats"] = []
    assert found(results) is None and 'id="answers"' not in report.html(results)


def test_a_row_of_which_no_probabilities_are_known_is_shown_without():
    results = labelled()
    for row in results["examples"]["rows"]:
        row["scores"] = [{} for _ in row["scores"]]
    shown = found(results)["rows"]["rows"][0]
    assert {arm["share"] for group in shown["answers"] for arm in group["arms"]} == {""}


@pytest.mark.parametrize(
    "odd",
    ["neg\x1b[32m", "zero\u200bwidth", "so\xadft", "\u202eright", "long " * 500, "two\nlines", "\\x1b as typed"],
    ids=range(7),
)
def test_a_label_that_is_shown_otherwise_than_it_is_written_keeps_its_probabilities(odd):
    plain, results = labelled(), json.loads(json.dumps(labelled()).replace('"negative"', json.dumps(odd)))
    assert results["task"]["labels"][0] == odd
    shown, same = found(results)["rows"]["rows"], found(plain)["rows"]["rows"]
    for key in ("shares", "place", "right", "answered"):
        assert [one[key] for one in shown] == [one[key] for one in same]
    assert shown[0]["shares"].split() == ["0.75"] * len(results["examples"]["arms"])
    titles = [arm["all"] for row in shown for group in row["answers"] for arm in group["arms"]]
    assert all("0.750" in one and "0.250" in one for one in titles)
    assert not re.search("[\x00-\x09\x0b-\x1f\xad\u200b\u202e]", report.html(results))


def test_two_labels_that_are_shown_alike_are_still_two():
    results = json.loads(json.dumps(labelled()).replace('"negative"', '"a\\u001b"').replace('"positive"', '"a\\\\x1b"'))
    assert results["task"]["labels"] == ["a\x1b", "a\\x1b"]
    shown, same = found(results)["rows"]["rows"], found(labelled())["rows"]["rows"]
    for key in ("shares", "place", "right", "answered"):
        assert [one[key] for one in shown] == [one[key] for one in same]
    assert {arm["all"] for row in shown for group in row["answers"] for arm in group["arms"]} == {
        "a\\x1b 0.750, a\\x1b 0.250"
    }


@pytest.mark.parametrize("poison", HOSTILE, ids=range(len(HOSTILE)))
def test_labels_and_rows_are_text_and_never_html(poison):
    results = poisoned(labelled(), poison)
    parsed, clean = Tags(report.html(results)), Tags(report.html(labelled()))
    assert {tag for tag, _ in parsed.tags} <= {tag for tag, _ in clean.tags}
    assert parsed.open == []
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on") or key == "style"]


def test_a_page_with_two_hundred_rows_stays_small():
    results = labelled()
    row = results["examples"]["rows"][0] | {"input": "word " * 200}
    results["examples"]["rows"] = [copy.deepcopy(row) for _ in range(200)]
    assert len(report.html(results).encode()) < 1_200_000


PAGE = """
const made = [];
const element = () => {
  const one = { append() {}, addEventListener(name, run) { one.run = run; }, value: "" };
  made.push(one);
  return one;
};
const row = (given, label, right, answered, shares) => ({
  hidden: false, dataset: { label, right, answered, shares }, querySelectorAll: () => [{ textContent: given }],
});
const rows = [row("a good film", "1", "1 0", "0 1", "0.9 0.6"), row("a dull film", "0", "0 1", "1 0", "0.7 0.8"),
  row("a film", "0", "0 0", "0 0", "0.5 0.95"), row("none", "1", "1 1", "0 0", "0.9 0.9")];
let order = rows;
const list = (...texts) => ({ children: texts.map((text) => ({ textContent: text })) });
const table = { tBodies: [{ rows, append: (...found) => { order = found; } }], parentElement: { before() {} } };
const things = { "answers-table": table, "answers-arms": list("a", "b"), "answers-labels": list("no", "yes") };
globalThis.document = { getElementById: (id) => things[id], createElement: element };
"""
ASKED = """
const [search, show, of, against, label, by] = made.filter((one) => one.run);
const shown = () => rows.flatMap((one, index) => (one.hidden ? [] : [index]));
const asked = (given) => {
  for (const field of [show, of, against, label, by]) field.value = "0";
  search.value = "";
  for (const [field, value] of given) field.value = value;
  search.run();
  return shown();
};
const found = {
  all: asked([]), words: asked([[search, "FILM a"]]), wrong: asked([[show, "1"]]),
  wrongOfB: asked([[show, "1"], [of, "2"]]),
  wrongOfBandNotOfA: asked([[show, "1"], [of, "2"], [against, "1"]]), allWrong: asked([[show, "2"]]),
  differ: asked([[show, "4"]]), differTwo: asked([[show, "4"], [of, "1"], [against, "2"]]),
  yes: asked([[label, "2"]]),
};
by.value = "1"; of.value = "0"; by.run();
found.surest = order.map((one) => rows.indexOf(one));
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node to run the page's script with")
def test_rows_are_found_by_words_errors_disagreement_and_label():
    folder = Path(report.__file__).parent / "templates"
    script = "".join((folder / name).read_text("utf-8") for name in ("fields.js", "answers.js"))
    done = subprocess.run(["node", "-e", PAGE + script + ASKED], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "all": [0, 1, 2, 3],
        "words": [0, 1, 2],
        "wrong": [0, 1, 2],
        "wrongOfB": [0, 2],
        "wrongOfBandNotOfA": [0],
        "allWrong": [2],
        "differ": [0, 1],
        "differTwo": [0, 1],
        "yes": [0, 3],
        "surest": [2, 1, 0, 3],
    }


def test_every_class_of_a_shade_is_in_the_style():
    html = report.html(labelled())
    used = set(re.findall(r'class="(?:hit|miss) (s\d)"', html)) - {"s0"}
    style = (Path(report.__file__).parent / "templates" / "answers.css").read_text()
    assert used and all(f".{one}" in style for one in used)
