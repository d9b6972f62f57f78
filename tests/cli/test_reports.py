"""`tunescope report` with one run and with two, its forms, and `tunescope index`: what is printed, written, refused."""

import csv
import json

import pytest
from report_example import example

from tunescope.cli import comparisons, output, studies
from tunescope.data.write import new_file
from tunescope.errors import UserError


@pytest.fixture
def runs(tmp_path):
    for name, outcome in {"a": "weights needed", "b": "context suffices"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(example(outcome)))
    return tmp_path


def test_two_runs_are_shown_and_written_beside_the_second(runs, capsys):
    comparisons.report(str(runs / "a"), str(runs / "b"))
    shown = capsys.readouterr().out
    assert "b against a" in shown and "verdict: weights needed -> " in shown
    assert shown.endswith(f"page: {runs / 'b' / 'against-a.html'}\n")
    assert "b against a" in (runs / "b" / "against-a.html").read_text()
    assert not (runs / "a" / "report.html").exists()
    comparisons.report(str(runs / "a"), str(runs / "b"), out=str(runs / "x.html"))
    assert (runs / "x.html").read_bytes() == (runs / "b" / "against-a.html").read_bytes()


def test_runs_of_one_name_are_told_apart_by_their_folders(runs, capsys):
    for place in ("x", "y"):
        (runs / place).mkdir()
        (runs / "a").rename(runs / place / "run") if place == "x" else (runs / "b").rename(runs / place / "run")
    comparisons.report(str(runs / "x" / "run"), str(runs / "y" / "run"))
    assert "y run against x run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("to", "begins"), [("csv", "arm,spec,"), ("markdown", "| arm |"), ("latex", "% \\usepackage"), ("bibtex", "@in")]
)
def test_a_form_is_printed_alone_and_nothing_is_written(runs, capsys, to, begins):
    comparisons.report(str(runs / "a"), to=to)
    assert capsys.readouterr().out.startswith(begins)
    assert [path.name for path in (runs / "a").iterdir()] == ["results.json"]


def test_a_form_has_its_long_rows_whole(runs, capsys):
    results = example()
    results["arms"][1]["spec"] = f"text:text={'so ' * 900}\x1b[2J"
    (runs / "a" / "results.json").write_text(json.dumps(results))
    comparisons.report(str(runs / "a"), to="csv")
    out = capsys.readouterr().out
    head, *rows = csv.reader(out.splitlines())
    assert {len(row) for row in rows} == {len(head)} and "\x1b" not in out
    assert any(row[head.index("spec")].startswith(f"text:text={'so ' * 600}") for row in rows)


def test_bibtex_has_every_method_once_of_results_that_name_them_and_of_earlier_ones(runs, capsys):
    comparisons.report(str(runs / "a"), to="bibtex")
    old = capsys.readouterr().out
    keys = [line.partition("{")[2].rstrip(",") for line in old.splitlines() if line.startswith("@")]
    assert len(keys) == len(set(keys)) and {"hu2022lora", "li2021prefix", "benzaken2022bitfit"} <= set(keys)
    assert old.count("{") == old.count("}") and "% without a paper of their own: text, full" in old
    results = example()
    for arm in results["arms"]:
        arm["methods"] = ["pez"] if arm["name"] == "full" else []
    (runs / "a" / "results.json").write_text(json.dumps(results))
    comparisons.report(str(runs / "a"), to="bibtex")
    assert capsys.readouterr().out.startswith("@misc{wen2023hard,")


def test_what_does_not_go_together_and_damage_are_one_line(runs):
    with pytest.raises(UserError, match="--out is for the page of two runs"):
        comparisons.report(str(runs / "a"), out="x.html")
    with pytest.raises(UserError, match=r"--to is for one run: tunescope report RUN --to csv"):
        comparisons.report(str(runs / "a"), str(runs / "b"), to="csv")
    (runs / "b" / "results.json").write_text('{"version": 1, "arms": [{"status": "done", "runs": 7}]}')
    with pytest.raises(UserError, match=rf"{runs}/b/results\.json does not hold what a comparison writes"):
        comparisons.report(str(runs / "a"), str(runs / "b"))


def test_a_second_run_that_is_a_search_is_named_as_one(runs):
    (runs / "s").mkdir()
    (runs / "s" / "config.json").write_text('{"version": 2, "searches": []}')
    with pytest.raises(UserError, match=rf"{runs}/s is of `tunescope search`"):
        comparisons.report(str(runs / "a"), str(runs / "s"))


@pytest.mark.parametrize("name", ["results.json", "notes.html", "folder"])
def test_what_is_no_page_of_two_runs_is_not_written_over(runs, capsys, name):
    (runs / "notes.html").write_text("<h1>mine</h1>")
    (runs / "folder").mkdir()
    out = runs / "a" / name if name == "results.json" else runs / name
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    with pytest.raises(
        UserError, match=rf"{out} is there and is not a page of two runs; move it away, or .*--out FILE"
    ):
        comparisons.report(str(runs / "a"), str(runs / "b"), out=str(out))
    assert capsys.readouterr().out == ""
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before


def test_a_page_of_two_runs_is_written_again(runs):
    for _ in range(2):
        comparisons.report(str(runs / "a"), str(runs / "b"))
        comparisons.report(str(runs / "b"), str(runs / "a"), out=str(runs / "b" / "against-a.html"))
    assert "a against b" in (runs / "b" / "against-a.html").read_text()
    with pytest.raises(UserError, match=r"/none is no folder\. Make it, or give a file in another: --out FILE"):
        comparisons.report(str(runs / "b"), str(runs / "a"), out=str(runs / "none" / "against-a.html"))


def test_a_page_that_is_not_of_anchors_is_refused_before_a_model_is_loaded(tmp_path):
    (tmp_path / "anchors.html").write_text("<h1>mine</h1>")
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "b"}\n')
    with pytest.raises(UserError, match=rf"{tmp_path}/anchors\.html is there and is not a page of tunescope; move"):
        studies.anchors("no-such-model", str(tmp_path / "rows.jsonl"), out=str(tmp_path), workers=1)
    assert (tmp_path / "anchors.html").read_text() == "<h1>mine</h1>"


def test_a_page_is_written_where_nobody_reads_what_is_printed(runs, monkeypatch):
    def closed(*given, **more):
        raise BrokenPipeError

    for module in (comparisons, output):
        monkeypatch.setattr(module, "say", closed)
    pages = {
        runs / "a" / "report.html": lambda: comparisons.report(str(runs / "a")),
        runs / "b" / "against-a.html": lambda: comparisons.report(str(runs / "a"), str(runs / "b")),
        runs / "index.html": lambda: comparisons.index(str(runs)),
    }
    for path, asked in pages.items():
        with pytest.raises(BrokenPipeError):
            asked()
        assert path.exists()
    with pytest.raises(BrokenPipeError), new_file(runs / "rows.jsonl", ["a"]) as put:
        closed(put({"a": 1}))
    assert (runs / "rows.jsonl").read_text() == '{"a": 1}\n'


def test_an_index_is_printed_and_written(runs, capsys):
    comparisons.index(str(runs))
    shown = capsys.readouterr().out
    assert shown.startswith("a: weights needed; full ") and shown.endswith(f"page: {runs / 'index.html'}\n")
    assert 'id="runs"' in (runs / "index.html").read_text()
