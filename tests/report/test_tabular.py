"""A run's arms as rows, CSV, Markdown, LaTeX and notebook HTML, read back by what is not ours."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from payloads import HOSTILE, poisoned
from report_example import example
from test_outputs import written
from test_page import Tags

from tunescope.report import notebook, tabular, text

RESULTS = example()
UNCORRECTED = "The intervals of the differences are not corrected for how many of them there are."
RAW = {arm["name"]: arm for arm in RESULTS["arms"]}


def test_rows_are_numbers_best_first_with_differences_to_the_best():
    rows = tabular.rows(RESULTS)
    assert json.loads(json.dumps(rows)) == rows and len(rows) == 13
    done = [one for one in rows if one["status"] == "done"]
    assert [one["score"] for one in done] == sorted((one["score"] for one in done), reverse=True)
    pairs = {(one["a"], one["b"]): one for one in RESULTS["comparisons"]}
    for one in done:
        raw = RAW[one["arm"]]
        assert (one["score"], [one["low"], one["high"]]) == (raw["score"], raw["interval"])
        assert (one["stored"], one["seeds"]) == (raw["parameters"]["stored"], len(raw["runs"]))
        if one["arm"] != "full":
            pair = pairs[one["arm"], "full"]
            told = one["difference"], one["difference_low"], one["difference_high"]
            assert told == (pair["difference"], *pair["interval"])
    assert [one["difference"] for one in rows if one["arm"] == "full"] == [0.0]
    lost = [one for one in rows if one["status"] != "done"]
    assert all(one["score"] is None and one["reason"] for one in lost) and len(lost) == 3


def test_an_arm_that_did_not_finish_has_no_score_whatever_its_seeds_had():
    results = example()
    arm = next(one for one in results["arms"] if one["status"] == "done" and one["name"] != "full")
    arm |= {"status": "failed", "reason": "out of memory", "score": 0.999, "interval": [0.9, 1.0]}
    row = next(one for one in tabular.rows(results) if one["arm"] == arm["name"])
    assert (row["status"], row["score"], row["low"], row["high"]) == ("failed", None, None, None)
    (bold,) = [line for line in tabular.as_latex(results).splitlines() if "textbf" in line]
    assert bold.startswith("full")


def test_other_metrics_have_columns():
    row = next(one for one in tabular.rows(written()) if one["status"] == "done")
    assert (row["nist"], row["nist_low"], row["ter_high"]) == (8.5123, 8.4, 42)


def test_csv_read_back_has_every_number():
    rows, back = tabular.rows(RESULTS), list(csv.DictReader(io.StringIO(tabular.as_csv(RESULTS))))
    for one, other in zip(rows, back, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert other[name] == ("" if value is None else str(value))


def test_a_cell_that_a_spreadsheet_would_compute_is_text():
    for formula in ("=1+1", "+1", "-1+1", "@SUM(A1)"):
        results = poisoned(example(), formula)
        back = list(csv.DictReader(io.StringIO(tabular.as_csv(results))))
        assert not [cell for row in back for cell in row.values() if re.match(r"[=+@]|-(?!\d)", cell or "")]


def unlatexed(line):
    """The cells of a LaTeX row as a person reads them."""
    cells = line.removesuffix(r" \\").split(" & ")
    named = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", "$-$": "−"}
    for i, cell in enumerate(cells):
        cell = re.sub(r"\\textbf\{(.*)\}$", r"\1", cell)
        for made, plain in named.items():
            cell = cell.replace(made, plain)
        cells[i] = re.sub(r"\\([&%$#_{}])", r"\1", cell)
    return cells


def test_latex_is_a_booktabs_table_with_intervals_and_the_best_in_bold():
    lines = tabular.as_latex(RESULTS).splitlines()
    assert lines.pop(1) == f"% {UNCORRECTED}"
    assert [lines[at] for at in (0, 1, 2, 4, -2, -1)] == [
        "% \\usepackage{booktabs}", r"\begin{tabular}{lrrrr}", r"\toprule", r"\midrule", r"\bottomrule",
        r"\end{tabular}",
    ]  # fmt: skip
    body = [unlatexed(line) for line in lines[5:-2]]
    assert {len(cells) for cells in body} == {5} and len(body) == 13
    best = RAW["full"]
    low, high = best["interval"]
    assert body[0][:3] == ["full", f"{best['score']:.3f}", f"{low:.3f} to {high:.3f}"]
    assert r"\textbf{" + f"{best['score']:.3f}" in lines[5] and sum("textbf" in line for line in lines) == 1


@pytest.mark.parametrize("poison", [*HOSTILE, r"\input{/etc/passwd}", "a & b % c # d_e^f~g {h} [i]", "x | y < z"])
def test_hostile_names_stay_text_in_latex_markdown_and_html(poison):
    results = poisoned(example(), poison)
    latex = tabular.as_latex(results)
    for line in latex.splitlines()[4:-2]:
        bare = re.sub(r"\\[&%$#_{}]|\$-\$|\{[][]\}", "", line)
        bare = re.sub(
            r"\\text(backslash|asciitilde|asciicircum|less|greater|bar)\{\}|\\textbf\{|\\(mid|bottom)rule", "", bare
        )
        bare = bare.removesuffix(r" \\")
        assert not re.search(r"[\\%$#_^~{]|[\x00-\x08\x1b]", bare), bare
        assert line.count(" & ") == 4 or line.startswith("\\")
    markdown = tabular.as_markdown(results)
    table, note = markdown.split("\n\n")
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} == {6}
    assert note == f"{UNCORRECTED}\n"
    assert "<" not in markdown
    parsed = Tags(notebook.html(results))
    assert {tag for tag, _ in parsed.tags} <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert not [attrs for _, attrs in parsed.tags if set(attrs) - {"colspan"}]


def test_of_a_single_difference_nothing_is_to_be_corrected():
    kept = next(row["arm"] for row in tabular.rows(RESULTS) if row["difference_low"] is not None)
    one = RESULTS | {"comparisons": [pair for pair in RESULTS["comparisons"] if kept in (pair["a"], pair["b"])]}
    assert sum(row["difference_low"] is not None for row in tabular.rows(one)) == 1
    for told in (tabular.as_latex(one), tabular.as_markdown(one), notebook.html(one)):
        assert "not corrected" not in told


def test_a_notebook_has_the_answer_and_every_arm_and_no_script():
    html = notebook.html(RESULTS, "runs/x/report.html")
    said = " ".join(" ".join(Tags(html).text).split())
    assert said.startswith("Weights needed.") and all(name in said for name in RAW) and "runs/x/report.html" in said
    assert said.count(UNCORRECTED) == 1
    assert "<script" not in html and "<style" not in html and "needs 19.2 GiB" in said


def test_a_difference_is_the_same_whichever_arm_of_its_pair_is_named_first():
    turned = example()
    for pair in turned["comparisons"]:
        low, high = pair["interval"]
        pair |= {"a": pair["b"], "b": pair["a"], "difference": -pair["difference"], "interval": [-high, -low]}
    assert tabular.rows(turned) == tabular.rows(RESULTS)


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_each_other_metric_has_a_column_with_its_interval(form):
    results = written()
    names = [text.metric(name) for name in results["task"]["also"]]
    assert len(names) > 1
    lines = tabular.FORMS[form](results).splitlines()
    head = next(line for line in lines if line.lstrip("| ").startswith("arm"))
    for name in names:
        assert name.removesuffix(" ↓") in head
    best = next(one for one in tabular.rows(results) if one["status"] == "done")
    line = next(line for line in lines if line.lstrip("| ").startswith(best["arm"]))
    assert f"{best['nist']:.2f} ({best['nist_low']:.2f} to {best['nist_high']:.2f})" in line
    assert len({line.count(" & " if form == "latex" else " | ") for line in lines if best["arm"] in line} - {0}) == 1


def test_heads_name_the_best_arm_whole():
    results = example()
    long = "prefix:length=2,init_from=noise,positions=after"
    renamed = json.loads(json.dumps(results).replace('"full"', json.dumps(long)))
    assert f"against {long}" in tabular.as_markdown(renamed).replace("\\_", "_")
