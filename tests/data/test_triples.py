"""DART: its JSON, its XML and the stored copy."""

import json

import made
import pytest

from tunescope.data.corpus import corpus
from tunescope.errors import UserError

ENTRY = {
    "tripleset": [["Oslo", "IS IN", "Norway"], ["[TABLECONTEXT]", "[TITLE]", "Cities"]],
    "subtree_was_extended": False,
    "annotations": [{"source": "made", "text": "Oslo is in Norway. "}, {"source": "made", "text": "Norway has Oslo."}],
}
INPUT = "Oslo : is in : Norway | [TABLECONTEXT] : [title] : Cities"
XML = """<benchmark><entries>
<entry category="MISC" eid="Id1" size="2"><modifiedtripleset>
<mtriple>Oslo | IS IN | Norway</mtriple><mtriple>[TABLECONTEXT] | [TITLE] | Cities</mtriple></modifiedtripleset>
<lex comment="made" lid="Id1">Oslo is in Norway. </lex><lex comment="made" lid="Id2">Norway has Oslo.</lex></entry>
</entries></benchmark>"""
ROWS = [{"input": INPUT, "target": "Oslo is in Norway."}, {"input": INPUT, "target": "Norway has Oslo."}]


def test_json_and_xml_give_the_same_rows(tmp_path):
    none = {"tripleset": [["a", "b", "c"]], "annotations": []}
    empty = {"tripleset": [["a", "b", "c"]], "annotations": [{"text": " "}]}
    made.put(tmp_path / "dart-v1.1.1-full-train.json", json.dumps([ENTRY, none, empty], indent=2))
    made.put(tmp_path / "dart-v1.1.1-full-dev.json", json.dumps([ENTRY]))
    made.put(tmp_path / "dart-v1.1.1-full-dev.xml", "not read")
    made.put(tmp_path / "dart-v1.1.1-full-test.xml", XML)
    found = corpus(f"dart:{tmp_path}")
    assert {part: list(rows) for part, rows in found.items()} == {"train": ROWS, "dev": ROWS, "test": ROWS}
    name = tmp_path.name
    assert found.notes == (
        f"dart:{name}#train: 1 entries without a text left out.",
        f"dart:{name}#train: 1 empty texts left out.",
    )
    assert [(row.line, row.file) for row in found["train"]] == [(2, f"{name}/dart-v1.1.1-full-train.json")] * 2
    assert found["test"][0].line == 2


def test_entries_that_have_the_triples_of_an_earlier_one_are_counted(tmp_path):
    none = {"tripleset": ENTRY["tripleset"], "annotations": []}
    made.put(tmp_path / "dart-v1.1.1-full-test.json", json.dumps([none, ENTRY, none, ENTRY, ENTRY]))
    found = corpus(f"dart:{tmp_path}")
    assert list(found["test"]) == ROWS * 3
    again = "2 entries have the triples of an earlier one, and are scored as one input with it"
    assert found.notes[1:] == (f"dart:{tmp_path.name}#test: {again}.",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[\n{"tripleset": [["a", "b"]], "annotations": []}]',
            r"line 2: the entry needs 'tripleset', a list of \[subject",
        ),
        (
            '[{"tripleset": [["a", "b", "c"]], "annotations": [{"lex": "d"}]}]',
            r"line 1: the entry needs .*'annotations'",
        ),
        ('[{"tripleset": [["a", "b", "c"]]}]', r"line 1: the entry needs .*'annotations'"),
        ('[{"tripleset": [["a", "b", "c"]], "annotations": 3}]', r"line 1: the entry needs .*'annotations'"),
        ('[{"tripleset": [], "annotations": []}]', r"line 1 has no triple\. Delete the entry"),
        ('[{"tripleset": "a"}\n, {]', r"line 1: the entry needs"),
        ("[[]]", r"line 1 is a list, where an entry, an object, is needed"),
        ("[" * 100000, r"line 1 is not JSON: nested too deeply"),
    ],
)
def test_an_entry_of_another_form_is_named_with_its_line(tmp_path, text, message):
    path = made.put(tmp_path / "a.json", text)
    with pytest.raises(UserError, match=message):
        corpus(f"dart:{path}")


def test_two_versions_in_one_folder_are_refused(tmp_path):
    for version in ("v1.0.0", "v1.1.1"):
        made.put(tmp_path / f"dart-{version}-full-dev.json", json.dumps([ENTRY]))
    with pytest.raises(UserError, match=r"and each could be dev\. Take one away"):
        corpus(f"dart:{tmp_path}")


@made.needs_shared
def test_the_stored_copy_has_the_entries_and_texts_that_it_should():
    found = corpus(f"dart:{made.SHARED / 'dart'}")
    assert {part: len(rows) for part, rows in found.items()} == {"dev": 6980, "test": 12551}
    for part, file in (("dev", "validation"), ("test", "test")):
        entries = made.stored(f"dart/{file}.jsonl.gz")
        expected = {" | ".join(f"{s} : {r.lower()} : {o}" for s, r, o in entry["triples"]) for entry in entries}
        assert {row["input"] for row in found[part]} == expected
