"""The page of a recipe: ours beside the paper's, drawings, and what every line wrote."""

import pytest
from payloads import HOSTILE, poisoned
from test_outputs import cells, written
from test_page import Tags

from tunescope.report import recipe_page, svg


def made(poison=None):
    result = {
        "title": "Prefixes of many lengths",
        "source": "Li and Liang 2021",
        "recipe": "prefix-length",
        "command": "tunescope reproduce prefix-length",
        "settings": {"metrics": ["bleu", "nist", "ter"]},
        "table": {"columns": ["parameters", "bleu"], "notes": ["Three seeds."]},
        "versions": {"torch": "2.13.0"},
        "machine": {"cores": 2},
    }
    shown = [("prefix of 1", [("480", ""), ("21.10 [20.00, 22.20]", "69.7")])]
    pages, examples = {"prefix of 1": "units/ab/run/report.html"}, written()["examples"]
    if poison is not None:
        settings = result["settings"]
        result, examples = poisoned(result, poison) | {"settings": settings}, poisoned(examples, poison)
        shown, pages = [(poison, [(poison, poison)])], {poison: "units/ab/run/report.html"}
    drawings = {"curve.svg": svg.figure((10, 10), "a curve")}
    return recipe_page.page(result, shown, drawings, pages, examples)


def test_ours_stands_over_the_papers_and_outputs_of_all_lines_side_by_side():
    html = made()
    text = " ".join(" ".join(Tags(html).text).split())
    assert Tags(html).open == []
    assert "prefix of 1 480 21.10 [20.00, 22.20] paper: 69.7" in text and "Three seeds." in text
    assert "zero-shot nothing 13.3 3.46 50.0 lora-2 The Eagle pub 1 13.3" in cells(html)
    assert ("a", {"href": "units/ab/run/report.html"}) in Tags(html).tags
    assert html.count("<svg") == 1 and 'aria-label="a curve"' in html


@pytest.mark.parametrize("poison", HOSTILE)
def test_whatever_names_and_outputs_hold_is_text(poison):
    parsed, clean = Tags(made(poison)), Tags(made())
    assert parsed.open == [] and {tag for tag, _ in parsed.tags} <= {tag for tag, _ in clean.tags}
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on")]
