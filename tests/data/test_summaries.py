"""XSum and DialogSum in their published forms and the stored copies."""

import json

import made
import pytest

from tunescope.data.corpus import corpus
from tunescope.errors import UserError

ARTICLE = """[SN]URL[SN]
http://example.org/1

[SN]TITLE[SN]
Not used

[SN]FIRST-SENTENCE[SN]
A mill was sold.

[SN]RESTBODY[SN]
Share this with
The mill is old.
Twitter

It has a wheel.
"""
ROW = {"input": "The mill is old.\nIt has a wheel.", "target": "A mill was sold."}
IDS = "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json"


def ids(folder, **parts):
    made.put(folder / IDS, json.dumps(parts))


def test_xsums_articles_are_found_by_their_list_and_the_pages_clutter_goes(tmp_path):
    ids(tmp_path, test=["12"], train=["34", "12"], validation=["34"])
    made.put(tmp_path / "bbc-summary-data/12.summary", ARTICLE)
    made.put(tmp_path / "bbc-summary-data/34.summary", ARTICLE.replace("A mill was sold.", ""))
    found = corpus(f"xsum:{tmp_path}#train")
    assert found["train"] == [ROW]
    assert found["train"][0].file == "bbc-summary-data/12.summary"
    assert found.notes == (f"xsum:{tmp_path.name}#train: 1 articles with no text or no summary left out.",)
    assert corpus(f"xsum:{tmp_path}#test")["test"] == [ROW]
    with pytest.raises(UserError, match="#dev has no rows"):
        corpus(f"xsum:{tmp_path}")


def test_xsums_documents_and_summaries_may_lie_in_two_folders(tmp_path):
    ids(tmp_path, train=["7"])
    made.put(tmp_path / "document/7.document", ROW["input"] + "\n")
    made.put(tmp_path / "summary/7.summary", ROW["target"] + "\n")
    assert corpus(f"xsum:{tmp_path}")["train"] == [ROW]


def test_a_blank_article_is_left_out_and_counted(tmp_path):
    ids(tmp_path, train=["7", "8"])
    for name, text in (("7", ROW["input"]), ("8", " \n")):
        made.put(tmp_path / f"document/{name}.document", text)
        made.put(tmp_path / f"summary/{name}.summary", ROW["target"])
    found = corpus(f"xsum:{tmp_path}")
    assert found["train"] == [ROW] and "1 articles with no text or no summary left out" in found.notes[0]


def test_an_article_that_is_not_there_is_named(tmp_path):
    ids(tmp_path, train=["7", "8", "9"])
    made.put(tmp_path / "document/7.document", "a")
    made.put(tmp_path / "document/8.document", "a")
    made.put(tmp_path / "summary/7.summary", "a")
    with pytest.raises(
        UserError, match=r"of 3 train articles in .*json, 2 are not there, such as 8\. They are looked for"
    ):
        corpus(f"xsum:{tmp_path}")


def test_an_article_without_its_sections_is_named(tmp_path):
    ids(tmp_path, train=["7"])
    made.put(tmp_path / "bbc-summary-data/7.summary", "text")
    with pytest.raises(UserError, match=r"7\.summary has no \[SN\]FIRST-SENTENCE\[SN\] and \[SN\]RESTBODY\[SN\]"):
        corpus(f"xsum:{tmp_path}")


@pytest.mark.parametrize("text", ["[1]", '{"train": [1]}', '{"train": 3}', '{"train": []}', "{", '{"train": ["../7"]}'])
def test_a_list_of_ids_of_another_form_is_refused(tmp_path, text):
    made.put(tmp_path / IDS, text)
    with pytest.raises(UserError, match=r"90-5-5\.json is no list of ids for each part"):
        corpus(f"xsum:{tmp_path}")


def test_xsum_as_jsonl_and_as_source_and_target(tmp_path):
    made.jsonl(tmp_path / "a/validation.jsonl", {"id": "1", "document": "a", "summary": "b"})
    assert dict(corpus(f"xsum:{tmp_path / 'a'}")) == {"dev": [{"input": "a", "target": "b"}]}
    made.put(tmp_path / "b/val.source", "a\n")
    made.put(tmp_path / "b/val.target", "b\n")
    assert dict(corpus(f"xsum:{tmp_path / 'b'}")) == {"dev": [{"input": "a", "target": "b"}]}


def test_dialogsum_has_one_summary_or_three(tmp_path):
    talk = "#Person1#: Tea?\n#Person2#: Yes."
    one = {"fname": "a", "dialogue": talk, "summary": "Tea. ", "topic": "t"}
    made.jsonl(tmp_path / "dialogsum.train.jsonl", one, one | {"dialogue": " \n"})
    several = {"fname": "b", "dialogue": talk, "summary1": "One.", "topic1": "t", "summary2": "Two.", "summary3": " "}
    made.jsonl(tmp_path / "dialogsum.test.jsonl", several)
    made.jsonl(tmp_path / "dialogsum.dev.jsonl", {"dialogue": talk, "summaries": ["One.", "Two."]})
    made.jsonl(tmp_path / "dialogsum.hiddentest.dialogue.jsonl", {"fname": "c", "dialogue": talk})
    found = corpus(f"dialogsum:{tmp_path}")
    assert list(found) == ["train", "dev", "test"]
    assert found["train"] == [{"input": talk, "target": "Tea."}]
    assert found["test"] == found["dev"] == [{"input": talk, "target": text} for text in ("One.", "Two.")]
    assert found.notes == tuple(
        f"dialogsum:{tmp_path.name}#{part}: 1 pairs with an empty dialogue or summary left out."
        for part in ("train", "test")
    )


def test_a_dialogue_without_a_summary_is_named(tmp_path):
    path = made.jsonl(tmp_path / "a.jsonl", {"dialogue": "a", "topic": "b"})
    with pytest.raises(
        UserError, match=r"a\.jsonl line 1 has no summary, summary1 or summaries\. It has: dialogue, topic"
    ):
        corpus(f"dialogsum:{path}")


@made.needs_shared
def test_the_stored_copies_have_the_rows_that_they_should():
    found = corpus(f"dialogsum:{made.SHARED / 'dialogsum'}")
    assert {part: len(rows) for part, rows in found.items()} == {"dev": 500, "test": 1500}
    assert {part: len({row["input"] for row in rows}) for part, rows in found.items()} == {"dev": 500, "test": 500}
    assert len(corpus(f"xsum:{made.SHARED / 'xsum'}")["test_1k"]) == 1000


def test_clutter_of_a_page_goes_whatever_blanks_stand_around_it(tmp_path):
    ids(tmp_path, train=["12"])
    article = ARTICLE.replace("Twitter\n", "  Twitter \n").replace("Share this with\n", "Share this with\r\n")
    made.put(tmp_path / "bbc-summary-data/12.summary", article)
    assert corpus(f"xsum:{tmp_path}")["train"] == [ROW]
