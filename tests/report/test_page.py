"""The page as a reader and as an attacker would take it."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import shlex
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import bash
import pytest
from payloads import HOSTILE, poisoned
from report_example import example

from tunescope import report
from tunescope.errors import UserError
from tunescope.report.view import view

RESULTS = example()


class Tags(HTMLParser):
    """Every tag with its attributes, the open tags checked against the closed ones, and the text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.text.append(data)


def test_equal_results_give_equal_bytes():
    assert report.html(RESULTS) == report.html(copy.deepcopy(RESULTS))


def test_how_new_rows_are_answered_stands_there_with_the_arm_where_it_is_not_the_best():
    results = json.loads((Path(__file__).parents[2] / "results/sst2.json").read_text("utf-8"))
    asked = "tunescope predict RUN NEW.jsonl --out ANSWERS.jsonl"
    assert f"{asked}</pre>" in report.html(results)
    results["best"] = {"arm": "zero-shot", "path": None}
    page = report.html(results)
    (typed,) = shlex.split(unescape(re.search(rf"{asked} (.+)</pre>", page)[1]))
    assert typed.removeprefix("--arm=") == re.search(r'<p class="lead">(.+) on new rows, in Python', page)[1]


@pytest.mark.parametrize("name", ["sst2", "trec", "e2e"])
def test_results_of_earlier_versions_still_make_a_page(name):
    html = report.html(json.loads((Path(__file__).parents[2] / "results" / f"{name}.json").read_text("utf-8")))
    assert Tags(html).open == [] and "How to use it" in html
    assert ("What next" in html) == (name != "trec")  # which has all arms, and no rows that could be given would tell
    assert ('id="answers"' in html) == (name != "e2e")


def test_the_results_are_left_as_they_were():
    before = copy.deepcopy(RESULTS)
    report.html(RESULTS)
    assert before == RESULTS


def test_the_page_is_one_small_well_formed_file_that_asks_for_nothing(tmp_path):
    path = report.write(RESULTS, tmp_path / "page.html")
    html = path.read_text(encoding="utf-8")
    parsed = Tags(html)
    assert parsed.open == []
    assert len(html.encode()) < 300_000
    outside = {"src", "href", "srcset", "action", "data", "xlink:href"}
    links = {value for _, attrs in parsed.tags for key, value in attrs.items() if key in outside}
    assert links == {"#scores"}
    assert "@import" not in html
    assert "url(" not in html


def test_the_policy_names_exactly_the_style_and_the_script_of_the_page():
    html = report.html(RESULTS)
    policy = next(attrs["content"] for tag, attrs in Tags(html).tags if attrs.get("http-equiv"))
    for kind in ("style", "script"):
        (body,) = re.findall(rf"<{kind}>(.*?)</{kind}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_there_are_no_inline_handlers_and_no_inline_styles():
    for _, attrs in Tags(report.html(RESULTS)).tags:
        assert not [key for key in attrs if key.startswith("on") or key == "style"]


def test_the_answer_comes_first_with_its_three_sentences():
    text = " ".join(" ".join(Tags(report.html(RESULTS)).text).split())
    places = [text.index(one) for one in ("Weights needed.", *RESULTS["verdict"]["sentences"], "Scores")]
    assert places[1:] == sorted(places[1:])


def test_every_seed_of_every_arm_is_a_dot():
    html = report.html(RESULTS)
    for arm in RESULTS["arms"]:
        for run in arm["runs"]:
            note = f"{arm['name']}, seed {run['seed']}: {run['test']['accuracy']:.3f}"
            assert f"<title>{note}</title>" in html


def test_arms_that_did_not_finish_are_shown_with_their_reason():
    text = " ".join(Tags(report.html(RESULTS)).text)
    for arm in RESULTS["arms"]:
        assert arm["name"] in text
        assert arm["reason"] in text
    assert "loss was inf at step 12" in text  # a trial, too


def test_every_fact_of_the_run_is_there():
    text = " ".join(Tags(report.html(RESULTS)).text)
    for fact in (
        RESULTS["command"],
        RESULTS["model"]["fingerprint"],
        *(part["sha256"] for part in RESULTS["data"].values() if isinstance(part, dict)),
        *RESULTS["versions"].values(),
        RESULTS["protocol"]["selection"],
        RESULTS["data"]["notes"][0],
        "With 5 seeds and 400 test rows, a true difference to full had to be about",
        "Not in the charts, because they did not finish: adapter-4096, lora-2 fast, anchors.",
    ):
        assert fact in text


@pytest.mark.parametrize(
    ("runs", "pairs", "over", "told"),
    [
        ({}, 3, "over seeds and test rows.", "With 3 seeds and"),
        ({"full": 5, "lora-2": 5}, 3, "over seeds and test rows.", "With 3 to 5 seeds and"),
        ({}, None, "over seeds and test rows.", "With 3 seeds and"),  # older comparisons do not tell
        (
            dict.fromkeys((arm["name"] for arm in RESULTS["arms"]), 1),
            1,
            "test rows only: one seed was",
            "With 1 seed and",
        ),
    ],
)
def test_the_seeds_told_are_those_that_ran_and_not_those_that_were_asked_for_before_looks(runs, pairs, over, told):
    results = copy.deepcopy(RESULTS)
    results["protocol"]["seeds"] = [0]
    for arm in results["arms"]:
        arm["runs"] = arm["runs"][: runs.get(arm["name"], 3)]
    for one in results["comparisons"]:
        both = {one["a"], one["b"]} == set(runs)
        one |= {"seeds": 5 if both else pairs} if pairs else {}
    limits = view(results).limits
    assert over in limits[1] and ("one seed" in limits[1]) == (pairs == 1)
    assert any(limit.startswith(told) for limit in limits)


@pytest.mark.parametrize("poison", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_adds_no_tag_and_no_control_character(poison, tmp_path):
    results = poisoned(RESULTS, poison)
    path = report.write(results, tmp_path / "page.html")  # and it can be encoded
    html = path.read_text(encoding="utf-8")
    parsed = Tags(html)
    assert parsed.open == []
    assert sum(tag == "script" for tag, _ in parsed.tags) == 1
    assert sum(tag == "style" for tag, _ in parsed.tags) == 1
    assert not {tag for tag, _ in parsed.tags} & {"img", "iframe", "object", "a href"}
    for _, attrs in parsed.tags:
        assert not [key for key in attrs if key.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", html)
    assert len(html.encode()) < 2_000_000


@pytest.mark.parametrize("rates", ["<b>1</b>", ["<b>1</b>", 0.5], [float("nan"), 0.5], {"<b>": 1}, 7, [None]])
def test_rates_that_are_no_numbers_are_left_out(rates):
    results = json.loads(json.dumps(RESULTS))
    arm = next(one for one in results["arms"] if one.get("trials") and one["status"] == "done")
    for one in (arm, *arm["trials"]):
        one |= {"learning_rates": rates, "learning_rate": 0.25}
    html = report.html(results)
    shown = re.findall(r'data-name="Rate"[^>]*>([^<]*)<', html)
    assert "<b>1</b>" not in html
    expected = {"list": "–" if rates == [None] else "0.5"}.get(type(rates).__name__, "0.25")
    assert expected in shown


def test_long_names_do_not_stretch_a_chart():
    results = copy.deepcopy(RESULTS)
    results["arms"][0]["name"] = "x" * 3000
    assert not re.search(r"<tspan[^>]*>[^<]{23,}</tspan>", report.html(results))


def test_a_hundred_long_arms_stay_under_two_megabytes():
    results = copy.deepcopy(RESULTS)
    arm = results["arms"][3]
    curve = [{"step": i, "loss": 1 / (i + 1), "dev": 0.5} for i in range(300)]
    run = {**arm["runs"][0], "curve": curve, "stats": []}
    runs = [{**run, "seed": s} for s in range(10)]
    results["arms"] = [{**arm, "name": f"arm {i}", "runs": runs} for i in range(100)]
    results["comparisons"] = []
    assert len(report.html(results).encode()) < 2_000_000


def test_paths_and_tokens_are_taken_out():
    results = copy.deepcopy(RESULTS)
    token = "hf_" + "a" * 34
    results["command"] = f"tunescope compare /home/lovelace/secret/train.jsonl --out=~/runs/a7 --token {token}"
    results["arms"][-1]["reason"] = r"cannot read C:\Users\lovelace\model.bin or https://host/a/b"
    html = report.html(results)
    assert "tunescope compare train.jsonl --out=a7 --token [redacted]" in html
    assert "cannot read model.bin or https://host/a/b" in html
    assert "lovelace" not in html
    assert token not in html


def test_the_commands_of_the_page_ask_what_the_run_was_asked():
    results, template = copy.deepcopy(RESULTS), "RUN /bin/ls {text}\n\tmy's \u202e" + 900 * "long "
    words = ["tunescope", "compare", "model", "train.jsonl", "--template", template, "--arms", "lora", "zero-shot"]
    results["command"] = shlex.join(words) + "  # in Python: seeds=[3]"
    html = report.html(results)
    shown = [unescape(one) for one in re.findall(r'<pre class="copy" tabindex="0">(.*?)</pre>', html, flags=re.DOTALL)]
    assert bash.words(shown[-1]) == words and shown[-1].endswith("'  # in Python: seeds=[3]") is False
    assert shown[-1].endswith(" # in Python: seeds=[3]")
    asked = [bash.words(one) for one in shown if one.startswith("tunescope compare")]
    assert len(asked) > 1 and all(template in one for one in asked)
    assert html.count('class="copy run"') >= 1  # where RUN is a folder's name


def test_scripts_go_on_where_the_folder_s_name_is_no_utf8():
    script = (Path(report.__file__).parent / "templates" / "page.js").read_text("utf-8")
    assert re.search(r"try \{\s*place = decodeURIComponent\(location\.pathname\);\s*\} catch", script)
    assert script.count("decodeURIComponent") == 1


@pytest.mark.parametrize(
    "missing", ["command", "created", "versions", "machine", "model", "data", "task", "protocol", "comparisons", "best"]
)
def test_a_section_that_is_missing_leaves_the_rest(missing):
    html = report.html({key: value for key, value in RESULTS.items() if key != missing})
    assert "Weights needed." in html


def test_a_verdict_that_is_missing_is_made():
    bare = {key: value for key, value in RESULTS.items() if key != "verdict"}
    assert report.html(bare) == report.html(RESULTS)


def test_results_without_a_finished_arm_still_make_a_page():
    lost = [arm for arm in RESULTS["arms"] if arm["status"] != "done"]
    html = report.html({**RESULTS, "arms": lost, "comparisons": [], "best": None, "verdict": None})
    assert "No verdict." in html
    assert "needs 19.2 GiB" in html


def test_a_diverged_arm_with_broken_numbers_is_drawn_without_them():
    results = copy.deepcopy(RESULTS)
    results["arms"][4]["runs"][0]["curve"][3]["loss"] = float("nan")
    results["arms"][4]["runs"][0]["dev"] = float("inf")
    results["arms"][4]["trials"][0]["dev"] = float("nan")
    numbers = {"d", "points", "cx", "cy", "x", "y", "x1", "x2", "y1", "y2", "dx", "r"}
    drawn = [value for _, attrs in Tags(report.html(results)).tags for key, value in attrs.items() if key in numbers]
    assert len(drawn) > 500
    assert not [value for value in drawn if "nan" in value or "inf" in value]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"version": 3, "arms": [{}]}, "of version 3, and this tunescope reads up to 2: use the tunescope"),
        ({"arms": [{}]}, "of version None"),
        ({"version": 1, "arms": []}, "hold no arms. Run `tunescope compare` with at least one arm"),
    ],
)
def test_results_that_cannot_be_shown_are_refused(results, message):
    with pytest.raises(UserError, match=re.escape(message)):
        report.html(results)


def test_the_report_and_the_verdict_never_import_torch():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from report_example import example; from tunescope import report\n"
        "results = example(); report.html(results); report.table(results)\n"
        "bad = [m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules]; sys.exit(', '.join(bad) or 0)"
    )
    here = str(Path(__file__).parents[1] / "tools")
    done = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def scores(results):
    """The table of scores."""
    html = report.html(results)
    start = html.index('<table id="table">')
    return Tags(html[start : html.index("</table>", start) + 8])


def test_balanced_accuracy_has_a_column_where_it_was_computed():
    heads = scores(RESULTS)
    assert "Balanced" in heads.text
    rows = re.findall(r"<tr data-arm.*?</tr>", report.html(RESULTS), flags=re.DOTALL)
    columns = sum(tag == "th" and attrs.get("scope") == "col" for tag, attrs in heads.tags)
    assert {len(re.findall(r"<t[hd][ >]", row)) for row in rows} == {columns}
    results = copy.deepcopy(RESULTS)
    for arm in results["arms"]:
        for run in arm["runs"]:
            del run["test"]["balanced_accuracy"]
    without = scores(results)
    assert "Balanced" not in without.text
    assert sum(tag == "th" and attrs.get("scope") == "col" for tag, attrs in without.tags) == columns - 1


def said(results):
    return " ".join(" ".join(Tags(report.html(results)).text).split())


def test_the_page_tells_of_items_scored_rates_typed_and_several_budgets():
    results = copy.deepcopy(RESULTS)
    results["data"]["test"]["rows"] = 9_999  # several references an input
    assert "With 5 seeds and 400 test rows" in said(results)
    assert "learning-rate trials from its method's own grid" in said(results) and "one budget" in said(results)
    results["protocol"] |= {"rates": [0.001, 0.0003], "budgets": [600, 1200]}
    assert "Every trained arm had the learning rates 0.001, 0.0003." in said(results)
    assert "these budgets" in said(results) and "one budget" not in said(results)


def test_names_that_are_alike_for_eighty_letters_are_told_apart():
    results = copy.deepcopy(RESULTS)
    first, second = [arm for arm in results["arms"] if arm["status"] == "done"][:2]
    long = "lora:" + "x" * 80
    first["name"], second["name"] = long + " @ 600", long + " @ 1,200"
    results["best"] = {"arm": second["name"], "path": "best"}
    edges = {"difference": -0.5, "interval": [-0.6, -0.4], "level": 0.95}
    results["comparisons"] = [{"a": first["name"], "b": second["name"], **edges}]
    arms = {arm["key"]: arm for arm in view(results).arms}
    assert arms[second["name"]]["behind"] == ("best on dev", "")
    assert arms[first["name"]]["behind"][0].startswith(("-0.5", "\u22120.5"))
