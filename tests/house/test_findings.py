"""docs/findings/: every number in a sentence is a cell of a file, every comparison is so, pictures are to scale."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import claims, finding_pictures, findings, spans
from scripts.numbers import RESULTS, Number, numbers
from tunescope.system import sealed_json

PAGE = "\n\n".join(path.read_text("utf-8") for path in findings.pages())
LABEL = "prefix-main | full tuning | bleu"


def prose(text: str) -> str:
    """What is written by hand: without what is put in, published numbers, code, names of files and headings."""
    text = findings.BLOCK.sub("", text)
    text = re.sub(r"<!-- (\S+):begin -->.*?<!-- \1:end -->", "", text, flags=re.DOTALL)
    text = spans.SPAN.sub("", text)
    text = re.sub(r"<!-- .*? -->|`[^`]*`|\]\([^)]*\)|^#.*$|^!.*$", "", text, flags=re.MULTILINE)
    return "\n\n".join(one for one in text.split("\n\n") if not one.strip().startswith("**Published.**"))


def unheld(text: str) -> list[str]:
    """Its numbers, but for years, the level of intervals, and digits within a name."""
    return re.findall(r"(?<![\w.-])(?!(?:19|20)\d\d\b|95 % intervals)\.?\d[\d.,]*", prose(text))


def test_every_number_in_a_sentence_of_the_page_is_put_in_from_a_file() -> None:
    assert not unheld(PAGE)


@pytest.mark.parametrize("said", ["It has .86 of them.", "So it is 12.5 to 3.", "With 50 rows, not with 500."])
def test_a_number_by_hand_is_found(said: str) -> None:
    assert unheld(f"# Title 1\n\n**Published.** 0.5\n\nGPT-2 (2021), <!-- n {LABEL} -->1.0<!-- / -->, `x 3`. {said}")


def test_no_mark_begins_a_line_of_a_paragraph_which_would_end_it() -> None:
    inline = re.findall(r"^<!-- (?:n |\w+:begin -->\S).*", PAGE, re.MULTILINE)
    assert not [one for one in inline if not one.startswith("<!-- model:")]


def test_a_span_gets_the_number_of_its_file() -> None:
    (row,) = [
        one for one in json.loads((RESULTS / "prefix-main.json").read_text())["table"]["rows"] if "full" in one["label"]
    ]
    cell = row["cells"][2]
    low, high = cell["interval"]
    made = spans.filled(f"<!-- n {LABEL} -->1<!-- / --> and <!-- n {LABEL} | mean --><!-- / -->")
    assert f"-->{cell['mean']:.1f} [{low:.1f}, {high:.1f}]<!--" in made and f"mean -->{cell['mean']:.1f}<!--" in made
    with pytest.raises(KeyError, match="no such row"):
        spans.filled("<!-- n prefix-main | no such row | bleu --><!-- / -->")


SAYS = "prefix-main | {} | {} | {} | bleu"


@pytest.mark.parametrize(
    ("so", "holds"),
    [
        (("full tuning", "above", "prefix*"), True),
        (("full tuning", "clear of", "*"), True),
        (("*", "above", "full tuning"), False),
        (("adapter, 3 %", "clear of", "LoRA, 2 %"), False),
        (("prefix, 2 %", "not clear of", "adapter, 3 %"), True),
        (("full tuning", "not clear of", "LoRA*"), False),
        (("LoRA*", "not clear of", "full tuning"), False),
    ],
)
def test_what_a_sentence_compares_is_held_against_the_file(so: tuple[str, str, str], holds: bool) -> None:
    assert (not spans.untrue(f"<!-- so {SAYS.format(*so)} -->\n\nSo it is.")) == holds


@pytest.mark.parametrize(
    "so",
    [
        "prefix-low-data-smollm2-adapters | full tuning | {} | LoRA, 2 % | 100 rows",  # by three subsets
        "ag_news-methods-16 | adapter | {} | prefix | accuracy",  # by the comparison's own pair
    ],
)
def test_intervals_that_meet_may_be_of_numbers_that_pairs_tell_apart(so: str) -> None:
    assert not spans.untrue(f"<!-- so {so.format('not clear of')} -->")
    assert spans.untrue(f"<!-- so {so.format('not told from')} -->")


def test_ahead_of_is_said_of_the_difference_and_one_way_alone() -> None:
    """Prefix less LoRA is .058 [.012, .103] at the larger budget, and at the smaller one it has 0 within."""
    said = "<!-- so sst2-smollm2 | {} | ahead of | {} | accuracy -->"
    large, small = ("prefix @ 276,480", "lora @ 276,480"), ("prefix @ 57,600", "lora @ 57,600")
    assert not spans.untrue(said.format(*large))
    assert spans.untrue(said.format(*large[::-1])) and spans.untrue(said.format(*small))


def test_a_number_without_an_interval_is_held_against_the_other_s_and_two_of_them_by_their_means_alone() -> None:
    """No prompt has .610, of one answer; PEZ .663 [.625, .701] over its seeds, random prompts about what none has."""
    said = "<!-- so pez-smollm2 | {} | {} | no prompt | accuracy -->"
    assert spans.untrue(said.format("PEZ", "not told from")) and not spans.untrue(said.format("PEZ", "clear of"))
    assert not spans.untrue(said.format("random*", "not told from"))
    alone = "<!-- so starts | prefix-text | {} | prefix-noise | * -->"
    assert not spans.untrue(alone.format("above"))
    with pytest.raises(ValueError, match="has an interval; only `above`"):
        spans.untrue(alone.format("not told from"))


@pytest.mark.parametrize("columns", ["accurracy", "accuracy; acuracy"])
def test_every_column_that_is_named_is_one_of_the_file_s(columns: str) -> None:
    with pytest.raises(ValueError, match="no such rows and columns"):
        spans.untrue(f"<!-- so pez-smollm2 | PEZ | above | no prompt | {columns} -->")


@pytest.mark.parametrize("so", [("nobody", "above", "*"), ("full tuning", "beats", "LoRA*")])
def test_a_comparison_of_nothing_or_in_other_words_is_refused(so: tuple[str, str, str]) -> None:
    with pytest.raises(ValueError, match=r"so prefix-main .*no such rows and columns"):
        spans.untrue(f"<!-- so {SAYS.format(*so)} -->")


def test_every_comparison_of_the_page_is_so() -> None:
    assert len(spans.SO.findall(PAGE)) > 50 and not spans.untrue(PAGE)


def test_every_claim_has_a_block_on_the_page() -> None:
    assert {one.file for one in claims.read()} <= {file for file, _ in findings.BLOCK.findall(PAGE)}


def elements(drawn: str, tag: str, class_: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawn).iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [one for one in found if set(class_.split()) <= set(one.get("class", "").split())]


def scale(drawn: str) -> tuple[float, float]:
    """Units a pixel from left to right, and what pixel 0 stands for, from the numbers at the axis."""
    ticks = [one for one in elements(drawn, "text", "tick") if one.get("text-anchor") == "middle"]
    shown = [(float(one.get("x", "")), one.text or "") for one in ticks]
    at = [(x, float(text.replace(",", ""))) for x, text in shown if re.fullmatch(r"[\d.,]+", text)]
    unit = (at[-1][1] - at[0][1]) / (at[-1][0] - at[0][0])
    return unit, at[0][1] - unit * at[0][0]


def test_a_picture_of_dots_has_each_interval_and_each_published_number_to_scale() -> None:
    drawn = finding_pictures.dots("prefix-main", "bleu")
    unit, zero = scale(drawn)
    cells = [cells["bleu"] for cells in numbers("prefix-main").values()]
    ends = [
        [float(one.get(end, "")) * unit + zero for end in ("x1", "x2")] for one in elements(drawn, "line", "whisker")
    ]
    assert ends == [pytest.approx(cell.interval, abs=0.2) for cell in cells]
    theirs = [float(one.get("cx", "")) * unit + zero for one in elements(drawn, "circle", "hollow")]
    assert theirs == pytest.approx([float(cell.paper) for cell in cells if cell.paper], abs=0.2)


def test_a_picture_of_training_ends_where_the_runs_ended() -> None:
    drawn = finding_pictures.training("petrov-lora")
    unit, zero = scale(drawn)
    ends = [float(re.split("[ L]", one.get("d", ""))[-2]) * unit + zero for one in elements(drawn, "path", "curve")]
    last: dict[str, list[int]] = {}
    for run in json.loads((RESULTS / "petrov-lora.json").read_text())["units"]:
        last.setdefault(run["unit"]["arm"], []).append(run["outcome"]["curve"][-1]["step"])
    assert ends == pytest.approx([min(of_seeds) for of_seeds in last.values()], abs=60)


def test_a_grid_has_our_numbers_above_and_theirs_below() -> None:
    drawn = finding_pictures.grid("petrov-table2")
    shown = [one.text for one in elements(drawn, "text", "value")]
    assert shown[:4] == ["0.184", "0.252", "0.249", "0.236"] and shown[20:24] == ["0.250", "0.250", "0.240", "0.220"]
    assert shown[25:28] == ["–", "–", "–"]


def test_a_column_that_there_is_not_is_no_picture() -> None:
    with pytest.raises(KeyError, match=r"results/prefix-main\.json has no column 'blue'"):
        finding_pictures.dots("prefix-main", "blue")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("prefix of 12", "context"),
        ("home-t5b: prompt, sentinel", "context"),
        ("rank-1 LoRA on the MLP and W_O", "delta"),
        ("parallel adapter, feed-forward, 1 %", "delta"),
        ("MAM: prefix of 30 and parallel adapter", "both"),
        ("full tuning", "full"),
        ("demos:k=4", "text"),
        ("pretrained", "none"),
        ("gradient-guided swaps (AutoPrompt)", "none"),
    ],
)
def test_a_line_has_the_colour_of_its_kind_of_method(row: str, kind: str) -> None:
    assert finding_pictures.kind(row) == kind


@pytest.mark.parametrize(
    ("paper", "number"),
    [
        ("68.2", 68.2),
        (".95±.02", 0.95),
        ("0±0", 0.0),
        ("24,426 of 32,000: .763", 0.763),
        ("3 of 4", None),
        ("fails", None),
        ("", None),
    ],
)
def test_a_published_number_is_read_where_there_is_one(paper: str, number: float | None) -> None:
    assert finding_pictures.published(Number(1.0, None, paper)) == number


def test_a_comparison_and_the_starts_are_read_as_tables_are() -> None:
    result = json.loads((RESULTS / "sst2-smollm2.json").read_text())
    assert [one["accuracy"].mean for one in numbers("sst2-smollm2").values()] == [
        arm["score"] for arm in result["arms"]
    ]
    starts = json.loads((RESULTS / "starts.json").read_text())["trec"]["arms"]
    assert {name: cells["trec"].values for name, cells in numbers("starts").items() if "trec" in cells} == {
        arm["name"]: tuple(arm["test"]) for arm in starts
    }


def test_a_table_that_another_page_has_is_linked_and_not_said_twice() -> None:
    assert findings.home("anchors") == ("Where the story can be tested", "anchors.md#where-the-story-can-be-tested")
    assert findings.home("prefix-main") is None and "<details>" in findings.block("prefix-main", "bleu")
    assert "<details>" not in findings.block("anchors", "anchors-flow-4-layers.svg")
    assert (
        not list(Path(findings.DOCS).glob("measured.md")) or "petrov" not in (findings.DOCS / "measured.md").read_text()
    )


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_result_is_what_was_written(path: Path) -> None:
    sealed_json.read(path, may_lack=True)  # raises where it is not
