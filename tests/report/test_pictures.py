"""What probes found, drawn: as a reader, a screen reader and an attacker would take it."""

import copy
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from payloads import HOSTILE
from test_page import Tags

from tunescope.probes.anchors.summary import line
from tunescope.report import findings_page
from tunescope.report.drawing import number
from tunescope.report.finding import Arcs, AttentionMap, Curves, Finding, HeatMap, Line, Pair
from tunescope.report.pictures import draw

NAN = float("nan")
GRID = HeatMap("Share", ["decoder.0.self", "decoder.1.self"], ["head 0", "head 1"], [[0.25, 1.0], [NAN, 0.0]])
MAP = AttentionMap("Attention", ["▁a", "▁b"], ["c0", "▁a", "▁b"], [[0.5, 0.5, 0], [0.1, 0.2, 0.7]], 1, 1)
PAIR = Pair("Moved", MAP, AttentionMap("attached", ["▁a", "▁b"], ["▁a", "▁b"], [[1, 0], [0.4, 0.6]], 0, 1))
FOUND = Finding(
    "Heading", "It says.", "It does not say.", ("layer", "share", "n"), [("decoder.0.self", 0.5, 3)], [GRID, MAP, PAIR]
)
FACTS = {"model": "m", "attached": "prefix:length=1"}


def test_a_grid_has_a_labelled_cell_with_its_value_for_every_number():
    drawn = ET.fromstring(draw(GRID))
    notes = [title.text for title in drawn.iter("title")]
    assert notes == [
        "decoder.0.self, head 0: 0.250",
        "decoder.0.self, head 1: 1.000",
        "decoder.1.self, head 0: –",
        "decoder.1.self, head 1: 0",
    ]
    texts = [one.text for one in drawn.iter("text")]
    assert {"0.250", "1.000", "–", "0", "head 0", "decoder.1.self"} <= set(texts)
    assert [float(cell.get("fill-opacity")) for cell in drawn.iter("rect")] == [0.25, 1, 0, 0]
    assert drawn.get("role") == "img"
    assert drawn.get("aria-label") == "Share. From 0 (decoder.1.self, head 1) to 1.000 (decoder.0.self, head 1)."


def test_a_map_frames_the_marked_query_and_says_what_it_attends_to():
    drawn = ET.fromstring(draw(MAP))
    (frame,) = [one for one in drawn.iter("rect") if one.get("class") == "marked"]
    rows = [float(one.get("y")) for one in drawn.iter("rect") if one.get("class") != "marked"]
    assert float(frame.get("y")) == pytest.approx(max(rows) - 0.5)
    assert drawn.get("aria-label") == "Attention. ▁b attends most to: ▁b 0.700, ▁a 0.200, c0 0.100."
    owners = [one.get("class") for one in drawn.iter("rect")][:6]
    assert owners == ["shade s-context", "shade s-text", "shade s-text"] * 2


def test_two_maps_share_one_scale():
    before, after = ET.fromstring(draw(PAIR)).findall("g")
    assert max(float(one.get("fill-opacity", 0)) for one in before.iter("rect")) == 0.7
    assert max(float(one.get("fill-opacity", 0)) for one in after.iter("rect")) == 1


@pytest.mark.parametrize("heads", [1, 16, 17, 64])
def test_labels_and_cells_stay_inside_however_many_heads_there_are(heads):
    grid = HeatMap("x", ["a layer"] * 48, [f"head {i}" for i in range(heads)], [[0.5] * heads] * 48)
    drawn = ET.fromstring(draw(grid))
    width, height = map(float, drawn.get("viewBox").split()[2:])
    for cell in drawn.iter("rect"):
        assert float(cell.get("x")) > 0 and float(cell.get("x")) + float(cell.get("width")) <= width
        assert float(cell.get("y")) > 0 and float(cell.get("y")) + float(cell.get("height")) <= height


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(0.4167, "0.417"), (1, "1.000"), (1e-17, "0"), (3.14e-5, "3.1e-5"), (18.54, "18.5"), (123.4, "123"), (NAN, "–"),
     (float("inf"), "–"), (-0.25, "-0.250"), (4.9e-4, "4.9e-4"), (5.1e-4, "0.00051"),
     (0.00149, "0.0015"), (0.01, "0.010"), (1e7, "1.0e+7")],
)  # fmt: skip
def test_numbers_are_short(value, wanted):
    assert number(value) == wanted


def test_equal_findings_give_equal_bytes_and_are_left_as_they_were():
    again = copy.deepcopy(FOUND)
    assert findings_page.page([FOUND], FACTS) == findings_page.page([again], FACTS)


def test_the_page_is_one_well_formed_file_that_asks_for_nothing_and_runs_nothing(tmp_path):
    html = findings_page.write(FOUND, tmp_path / "out", FACTS, ["a text"], "tunescope probe x").read_text("utf-8")
    parsed = Tags(html)
    assert parsed.open == []
    policy = next(attrs["content"] for _, attrs in parsed.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy and "unsafe" not in policy
    assert not [tag for tag, _ in parsed.tags if tag == "script"]
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on") or key == "style"]
    links = {value for _, attrs in parsed.tags for key, value in attrs.items() if key in {"src", "href", "data"}}
    assert links == {"#numbers"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "picture-1.svg", "picture-2.svg", "picture-3.svg", "probe.html", "probe.json",
    ]  # fmt: skip


@pytest.mark.parametrize("poison", HOSTILE)
def test_strings_of_others_are_shown_and_never_run(poison, tmp_path):
    mapped = AttentionMap(poison, [poison], [poison], [[1.0]], 0, 0)
    found = Finding(
        poison,
        poison,
        poison,
        (poison, poison),
        [(poison, 1.0)],
        [mapped, HeatMap(poison, [poison], [poison], [[1.0]])],
    )
    html = findings_page.write(found, tmp_path, {"model": poison, "attached": poison}, [poison], poison).read_text(
        "utf-8"
    )
    clean = Tags(findings_page.page([FOUND], FACTS))
    parsed = Tags(html)
    assert parsed.open == []
    assert {tag for tag, _ in parsed.tags} <= {tag for tag, _ in clean.tags} | {"pre"}
    assert not [key for _, attrs in parsed.tags for key in attrs if key.startswith("on")]
    for path in tmp_path.glob("*.svg"):
        names = {one.tag.rpartition("}")[2] for one in ET.fromstring(path.read_text("utf-8")).iter()}
        assert names <= {"svg", "style", "rect", "text", "title", "g"}


def test_a_drawing_as_a_file_of_its_own_needs_no_page():
    alone = findings_page.standalone(draw(MAP))
    root = ET.fromstring(alone)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in alone
    assert re.search(r"\.s-context \{ fill: #[0-9a-f]{6}; \}", alone)


def test_drawing_never_imports_torch():
    code = (
        "import sys; from tunescope.report import findings_page, pictures; from tunescope.probes import names\n"
        "from tunescope.report.finding import HeatMap; pictures.draw(HeatMap('x', ['a'], ['b'], [[1.0]]))\n"
        "names.lines()\n"
        "bad = [m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules]; sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


LINES = [Line("up", [0.0, NAN, 1.0], [0.0, NAN, 0.5], [0.2, NAN, 1.0], "context"), Line("flat", [0.5, 0.5, 0.5])]
CURVES = Curves("Shares", "layer", "share", ["1/4", "1/2", "all"], LINES)
ARCS = Arcs("Flow", ["text", "label 1", "answer"], [(0, 1, 2.0), (1, 2, 4.0), (0, 2, 0.001)], [1])


def test_curves_have_a_point_for_every_known_value_at_its_height_and_their_names():
    drawn = ET.fromstring(draw(CURVES))
    dots = {one.find("title").text: float(one.get("cy")) for one in drawn.iter("circle")}
    flat = [f"flat, {place}: 0.500" for place in CURVES.x]
    assert list(dots) == ["up, 1/4: 0", "up, all: 1.000", *flat]
    assert dots["up, 1/4: 0"] - dots["up, all: 1.000"] == pytest.approx(2 * (dots["up, 1/4: 0"] - dots[flat[0]]))
    assert {"up", "flat", "layer", "share"} <= {one.text for one in drawn.iter("text")}
    assert drawn.get("aria-label") == "Shares. up: from 0 to 1.000; flat: from 0.500 to 0.500."
    assert len(list(drawn.iter("polygon"))) == 1  # the range of the one line that has one


def test_a_draw_without_a_value_leaves_the_layer_to_the_others():
    mixed = line("share", [[0.2, NAN, NAN], [0.4, 0.6, NAN]])
    assert mixed.values[:2] == pytest.approx([0.3, 0.6]) and math.isnan(mixed.values[2])
    assert (mixed.low[:2], mixed.high[:2]) == ([0.2, 0.6], [0.4, 0.6]) and math.isnan(mixed.low[2])


def test_an_arc_is_as_wide_as_it_is_strong_and_coloured_by_the_marked_part_it_meets():
    drawn = ET.fromstring(draw(ARCS))
    arcs = {one.find("title").text: one for one in drawn.iter("path")}
    assert list(arcs) == ["text to label 1: 2.000", "label 1 to answer: 4.000"]  # the faintest is left out
    widths = [float(one.get("stroke-width")) for one in arcs.values()]
    assert widths == [4.0, 7.5]  # half a pixel, and seven for the strongest
    assert [one.get("class") for one in arcs.values()] == ["arc a-context", "arc a-delta"]
    assert "Strongest: label 1 to answer 4.000" in drawn.get("aria-label")


def test_curves_and_arcs_of_nothing_are_drawn_all_the_same():
    for empty in (Arcs("x", [], []), Arcs("x", ["a"], []), Curves("x", "", "", ["0"], [Line("a", [NAN])])):
        drawn = ET.fromstring(draw(empty))
        assert drawn.get("aria-label").startswith("x.") and drawn.get("role") == "img"
        assert not [*drawn.iter("path"), *drawn.iter("circle")]
        assert min(map(float, drawn.get("viewBox").split()[2:])) > 0


def test_names_in_curves_and_arcs_are_text_and_never_markup():
    hostile = "<script>alert(1)</script>"
    for picture in (
        Curves(hostile, hostile, hostile, [hostile], [Line(hostile, [0.5])]),
        Arcs(hostile, [hostile, hostile], [(0, 1, 1.0)], [0]),
    ):
        assert "<script" not in draw(picture)
