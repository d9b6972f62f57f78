"""WebNLG: XML in folders, the challenge's JSON, the stored copy; seen and unseen categories."""

import json

import made
import pytest

from tunescope.data.corpus import corpus
from tunescope.errors import UserError

XML = """<?xml version='1.0' encoding='utf-8'?>
<benchmark>
  <entries>
    <entry category="{category}" eid="Id1" size="2">
      <originaltripleset><otriple>Not_this | one | here</otriple></originaltripleset>
      <modifiedtripleset>
        <mtriple>Ada_B. | likes | "Tea &amp; milk, hot"</mtriple>
        <mtriple>Tea | colour | Black</mtriple>
      </modifiedtripleset>
      <lex comment="good" lid="Id1">Ada B. likes tea &lt;hot&gt;.</lex>
      <lex comment="" lid="Id2" lang="en"> Black tea is what Ada likes. </lex>
      <lex comment="good" lid="Id3" lang="ru">Ада</lex>
    </entry>
    <entry category="{category}" eid="Id2" size="1">
      <modifiedtripleset><mtriple>Tea | colour | Black</mtriple></modifiedtripleset>
    </entry>
  </entries>
</benchmark>
"""
INPUT = 'Ada_B. : likes : "Tea & milk, hot" | Tea : colour : Black'
TEXTS = ["Ada B. likes tea <hot>.", "Black tea is what Ada likes."]


@pytest.fixture
def folder(tmp_path):
    made.put(tmp_path / "train/2triples/2triples_Food_train.xml", XML.format(category="Food"))
    made.put(tmp_path / "train/3triples/3triples_Food_train.xml", XML.format(category="Food"))
    made.put(tmp_path / "dev/2triples/Food.xml", XML.format(category="Food"))
    one = XML.format(category="Food").partition("<entries>")
    both = one[0] + one[1] + one[2].partition("</entries>")[0] + XML.format(category="Artist").partition("<entries>")[2]
    made.put(tmp_path / "test/testdata_with_lex.xml", both)
    made.put(tmp_path / "test/testdata_no_lex.xml", XML.format(category="Wrong"))
    made.put(tmp_path / "test/testdata_unseen_with_lex.xml", XML.format(category="Wrong"))
    return tmp_path


def test_xml_becomes_a_row_for_each_english_text(folder):
    found = corpus(f"webnlg:{folder}")
    row = {"input": INPUT, "category": "Food", "seen": True}
    assert found["dev"] == [{**row, "target": text} for text in TEXTS]
    assert found["train"] == found["dev"] * 2
    assert (found["train"][0].file, found["train"][0].line) == ("2triples/2triples_Food_train.xml", 4)
    assert found["train"][2].file == "3triples/3triples_Food_train.xml"
    assert found["dev"].notes == (f"webnlg:{folder.name}#dev: 1 entries without a text left out.",)


def test_the_whole_test_with_texts_is_read_and_cut_by_the_training_categories(folder):
    assert [(row["category"], row["seen"]) for row in corpus(f"webnlg:{folder}")["test"]] == [
        ("Food", True),
        ("Food", True),
        ("Artist", False),
        ("Artist", False),
    ]
    for name, category in (("seen", "Food"), ("unseen", "Artist")):
        found = corpus(f"webnlg:{folder}#test_{name}")
        assert [row["category"] for row in found[f"test_{name}"]] == [category] * 2
        assert found.notes[-1].endswith(f"2 of 4 rows are of {name} domains.")


def test_a_folder_of_xml_inside_is_found(tmp_path):
    made.put(tmp_path / "xml/train/1triples/Food.xml", XML.format(category="Food"))
    assert len(corpus(f"webnlg:{tmp_path}")["train"]) == 2


def test_a_language_folder_inside_is_found(folder, tmp_path):
    release = tmp_path / "release_v3.0"
    for part in ("train", "dev"):
        made.put(release / "en" / part / "1triples/Food.xml", XML.format(category="Food"))
    made.put(release / "en/test/rdf-to-text-generation-test-data-with-refs-en.xml", XML.format(category="Film"))
    made.put(release / "en/test/semantic-parsing-test-data-with-refs-en.xml", XML.format(category="Wrong"))
    assert {row["category"] for row in corpus(f"webnlg:{release}")["test"]} == {"Film"}


def test_the_challenges_json_gives_the_same_rows(tmp_path):
    triples = [("Ada_B.", "likes", '"Tea & milk, hot"'), ("Tea", "colour", "Black")]
    entry = {
        "category": "Food",
        "lexicalisations": [{"comment": "good", "lang": "", "lex": text} for text in TEXTS],
        "modifiedtripleset": [dict(zip(("subject", "property", "object"), one, strict=True)) for one in triples],
    }
    path = made.put(tmp_path / "train.json", json.dumps({"entries": [{"1": entry}, {"2": entry}]}, indent=1))
    rows = corpus(f"webnlg:{path}")["train"]
    assert rows == [{"input": INPUT, "category": "Food", "target": text} for text in TEXTS] * 2
    lines = path.read_text().splitlines()
    assert [lines[row.line].strip() for row in rows] == ['"1": {', '"1": {', '"2": {', '"2": {']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]>\n<a>&b;</a>', r"a\.xml line 1 has a DOCTYPE, which is not read here"),
        ('<!DOCTYPE a SYSTEM "file:///etc/hostname">\n<a/>', r"a\.xml line 1 has a DOCTYPE"),
        ("<benchmark>\n<entry>\n</benchmark>", r"a\.xml line 3 is not XML: mismatched tag"),
        ("<a>" * 20000 + "</a>" * 20000, r"a\.xml has no <entry>"),
        ("<?xml version='1.0' encoding='utf-x'?><a/>", r"a\.xml says an encoding that is not known \(unknown encoding"),
        ("<benchmark><entries/></benchmark>", r"a\.xml has no <entry>"),
        (XML.replace("Tea | colour | Black", "Tea | Black"), r"a\.xml line 8: 'Tea \| Black' is no triple"),
        ("<a>\n<entry category='B'><lex>Text.</lex></entry></a>", r"a\.xml line 2 has no triple"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(tmp_path, text, message):
    path = made.put(tmp_path / "a.xml", text)
    with pytest.raises(UserError, match=message):
        corpus(f"webnlg:{path}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"entries": [{"1": {"category": "Food"}}]}', "line 1: the entry has no usable 'modifiedtripleset'"),
        ('{"entries":\n[{"1": 3}]}', "line 2: the entry has no usable"),
        ('{"entries":\n[{\n}, {"2"]}', "line 3 is not JSON"),
        ('{"entries":\n[3]}', "line 2 is a int, where an entry"),
        ('{"entries": [{}\n {}]}', "line 2: a comma or the list's end is missing"),
        ('{"rows": []}', 'must begin with {"entries": '),
        ("3", "is not one JSON list"),
    ],
)
def test_json_of_another_form_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        corpus(f"webnlg:{made.put(tmp_path / 'a.json', text)}")


def test_a_copy_without_triples_or_references_is_named(tmp_path):
    path = made.jsonl(tmp_path / "a.jsonl", {"triples": [["a", "b"]], "references": ["c"]})
    with pytest.raises(UserError, match=r"a\.jsonl line 1 needs 'triples', a list of \[subject, relation, object\]"):
        corpus(f"webnlg:{path}")


def test_a_copy_without_categories_has_no_seen_and_unseen_rows(tmp_path):
    for part in ("train", "test"):
        made.jsonl(tmp_path / f"{part}.jsonl", {"triples": [["a", "b", "c"]], "references": ["d"]})
    assert "seen" not in corpus(f"webnlg:{tmp_path}")["test"][0]
    with pytest.raises(UserError, match="what is unseen is known by the training rows"):
        corpus(f"webnlg:{tmp_path}#test_unseen")


def test_unseen_rows_of_a_file_alone_are_refused(folder):
    with pytest.raises(UserError, match="what is unseen is known by the training rows, and none are beside it"):
        corpus(f"webnlg:{folder / 'test/testdata_with_lex.xml'}#unseen")


@made.needs_shared
def test_a_stored_file_alone_knows_what_is_unseen():
    place = made.SHARED / "webnlg2017/test.jsonl.gz"
    assert len(corpus(f"webnlg:{place}#unseen")["unseen"]) == 2433


@made.needs_shared
def test_the_stored_copy_has_the_entries_texts_and_categories_that_it_should():
    found = corpus(f"webnlg:{made.SHARED / 'webnlg2017'}")
    assert {part: len(rows) for part, rows in found.items()} == {"train": 18102, "dev": 2268, "test": 4928}
    told = {row["category"]: row["seen"] for row in made.stored("webnlg2017/test.jsonl.gz")}
    assert {row["category"]: row["seen"] for row in found["test"]} == told
    inputs = {which: {row["input"] for row in found["test"] if row["seen"] is which} for which in (True, False)}
    assert (len(inputs[True]), len(inputs[False])) == (971, 891)
