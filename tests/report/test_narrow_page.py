"""What the page leaves out, and that its labels stay inside of their drawing."""

from __future__ import annotations

import re

from report_example import example
from test_page import Tags

from tunescope import report
from tunescope.report import charts, text


def test_facts_that_hold_nothing_have_no_row():
    results = example()
    results["task"] |= {"also": [], "source_language": "", "prior": {}, "head": None, "threshold": 0, "kept": False}
    results["protocol"]["rates"] = []
    parsed = Tags(report.html(results))
    shown = " ".join(" ".join(parsed.text).split())
    for gone in ("also", "source language", "prior", "rates", "looks"):
        assert f" {gone} " not in shown[shown.index("How it was made") :]
    assert "threshold 0" in shown and "kept no" in shown


def test_names_are_cut_in_the_middle_so_that_their_ends_tell_them_apart():
    names = [f"adapter:placement=parallel,scale=4.0 @ {size}" for size in ("16,000", "64,000")]
    short = [text.middle(name, 22) for name in names]
    assert [len(one) for one in short] == [22, 22] and short[0] != short[1]
    assert short[0].startswith("adapter") and short[0].endswith("16,000")
    assert text.middle("lora", 22) == "lora"


def test_a_label_of_the_sizes_chart_ends_inside_of_it_and_its_score_stands_before_the_name():
    results = example()
    for arm in results["arms"]:
        arm["name"] = f"W{arm['name']}" * 9
    html = report.html(results)
    (drawn,) = re.findall(r'<svg viewBox="0 0 940 448".*?</svg>', html, flags=re.DOTALL)
    labels = re.findall(
        r'<text x="([\d.]+)" y="[\d.]+" class="direct[^>]*><tspan class="value">([\d.]+)</tspan>'
        r'<tspan x="([\d.]+)" class="name">([^<]*)</tspan>',
        drawn,
    )
    assert len(labels) == 10
    for start, value, name_start, name in labels:
        assert float(start) + charts.VALUE <= float(name_start) and len(value) == 5
        assert float(name_start) + charts.BOLD * len(name) <= 940


def test_a_narrow_page_names_every_number_of_an_arm():
    html = report.html(example())
    row = re.findall(r"<tr data-arm.*?</tr>", html, flags=re.DOTALL)[0]
    cells = re.findall(r"<td ([^>]*)>", row)
    assert [cell for cell in cells if "data-name" not in cell] == ['class="drawn"']
