"""Multi30k, WMT and any parallel text: plain files, SGM pairs, source and target, JSONL."""

import made
import pytest

from tunescope.data.corpus import corpus
from tunescope.errors import UserError

SRC = """<srcset setid="newstest2016" srclang="any">
<doc sysid="src" docid="b1" genre="news" origlang="en">
<p><seg id="1">Tea &amp; milk &lt;hot&gt;.</seg></p>
<seg id="2">It is late.</seg>
</doc>
<doc docid="b2">
<seg id="1">Again.</seg>
</doc>
</srcset>
"""
REF = SRC.replace("srcset", "refset").replace("Tea &amp; milk &lt;hot&gt;.", "Ceai cu lapte.").replace("Again", "Iar")
REF = REF.replace("It is late.", " ")


def test_multi30k_is_english_to_german_whatever_other_languages_lie_beside(tmp_path):
    for name in ("train", "val", "test_2016_flickr", "test_2017_mscoco"):
        made.put(tmp_path / f"{name}.en.gz", f"A dog.\n{name}\u2028 two. \r\n")
        made.put(tmp_path / f"{name}.de.gz", f"Ein Hund.\n{name} zwei.\n")
        made.put(tmp_path / f"{name}.fr.gz", "Un chien.\n")
    made.put(tmp_path / "README.md", "text")
    found = corpus(f"multi30k:{tmp_path}")
    assert list(found) == ["train", "dev", "test", "test_2017_mscoco"]
    assert found["test"] == [
        {"input": "A dog.", "target": "Ein Hund.", "en": "A dog.", "de": "Ein Hund."},
        {
            "input": "test_2016_flickr\u2028 two.",
            "target": "test_2016_flickr zwei.",
            "en": "test_2016_flickr\u2028 two.",
            "de": "test_2016_flickr zwei.",
        },
    ]
    assert (found["dev"][1].file, found["dev"][1].line) == ("val.en.gz", 2)
    assert found["dev"].notes == (f"multi30k:{tmp_path.name}#dev: input is en, target is de.",)


def test_the_tokenised_multi30k_has_the_same_parts(tmp_path):
    for name in ("train", "val", "test_2016_flickr", "test_2018_flickr"):
        for side in ("en", "de"):
            made.put(tmp_path / f"{name}.lc.norm.tok.{side}", f"{name} .\n")
    parts = corpus(f"multi30k:{tmp_path}")
    assert list(parts) == ["train", "dev", "test", "test_2018_flickr.lc.norm.tok"]
    assert parts["test"][0]["input"] == "test_2016_flickr ."


def test_two_copies_of_one_side_are_refused(tmp_path):
    for name in ("train.en", "train.en.gz", "train.de"):
        made.put(tmp_path / name, "a\n")
    with pytest.raises(UserError, match=r"has train\.en and train\.en\.gz, and each could be train in en"):
        corpus(f"multi30k:{tmp_path}")


def test_an_sgm_pair_is_joined_by_document_and_segment_and_empty_sides_are_counted(tmp_path):
    made.put(tmp_path / "newstest2016-enro-src.en.sgm", SRC)
    made.put(tmp_path / "newstest2016-enro-ref.ro.sgm", REF)
    found = corpus(f"wmt:{tmp_path}")
    tea = {"input": "Tea & milk <hot>.", "target": "Ceai cu lapte."}
    again = {"input": "Again.", "target": "Iar."}
    assert found["test"] == [row | {"en": row["input"], "ro": row["target"]} for row in (tea, again)]
    assert [row.line for row in found["test"]] == [3, 7]
    assert found.notes == (
        f"wmt:{tmp_path.name}#test: input is en, target is ro.",
        f"wmt:{tmp_path.name}#test: 1 pairs with an empty side left out.",
    )


def test_an_sgm_pair_says_itself_which_side_is_the_source(tmp_path):
    made.put(tmp_path / "newstest2016-roen-src.ro.sgm", REF)
    made.put(tmp_path / "newstest2016-roen-ref.en.sgm", SRC)
    assert corpus(f"wmt:{tmp_path}")["test"][0]["input"] == "Ceai cu lapte."


def test_segments_that_are_not_the_same_ones_are_refused(tmp_path):
    made.put(tmp_path / "newsdev2016-enro-src.en.sgm", SRC)
    made.put(tmp_path / "newsdev2016-enro-ref.ro.sgm", REF.replace('docid="b2"', 'docid="b3"'))
    with pytest.raises(
        UserError, match=r"src\.en\.sgm has 3 lines and .*ref\.ro\.sgm has 3, or they are not the same ones"
    ):
        corpus(f"wmt:{tmp_path}")


def test_files_of_different_length_are_refused(tmp_path):
    made.put(tmp_path / "train.en", "a\nb\nc")
    made.put(tmp_path / "train.ro", "a\nb\n")
    with pytest.raises(UserError, match=r"train\.en has 3 lines and .*train\.ro has 2, or they are not the same ones"):
        corpus(f"wmt:{tmp_path}")


def test_of_two_other_languages_the_first_in_the_alphabet_is_the_source(tmp_path):
    made.put(tmp_path / "train.fr", "oui\n")
    made.put(tmp_path / "train.de", "ja\n")
    found = corpus(f"wmt:{tmp_path}")["train"]
    assert found == [{"input": "ja", "target": "oui", "de": "ja", "fr": "oui"}]
    assert found.notes == (f"wmt:{tmp_path.name}#train: input is de, target is fr.",)


def test_parts_have_the_usual_names_and_of_two_tests_each_keeps_its_own(tmp_path):
    for stem in ("train", "newsdev2016", "newstest2015", "newstest2016", "europarl-v8.ro-en"):
        made.put(tmp_path / f"{stem}.en", "a\n")
        made.put(tmp_path / f"{stem}.ro", "b\n")
    parts = list(corpus(f"wmt:{tmp_path}"))
    assert parts == ["train", "dev", "europarl-v8.ro-en", "newstest2015", "newstest2016"]


def test_three_languages_are_refused(tmp_path):
    for side in ("en", "de", "fr"):
        made.put(tmp_path / f"train.{side}", "a\n")
    with pytest.raises(
        UserError, match=r"has train in de, en, fr, and a pair is two\. Put the two that you mean into a"
    ):
        corpus(f"wmt:{tmp_path}")


def test_source_and_target_files_need_no_language(tmp_path):
    made.put(tmp_path / "val.source", "a\n\n")
    made.put(tmp_path / "val.target", "b\nc\n")
    found = corpus(f"wmt:{tmp_path}")
    assert dict(found) == {"dev": [{"input": "a", "target": "b"}]}
    assert found.notes == (f"wmt:{tmp_path.name}#dev: 1 pairs with an empty side left out.",)


@pytest.mark.parametrize("row", [{"ro": "b", "en": "a"}, {"translation": {"ro": "b", "en": "a"}}])
def test_jsonl_has_a_field_a_language(tmp_path, row):
    path = made.jsonl(tmp_path / "train.jsonl", row)
    assert corpus(f"wmt:{path}")["train"] == [{"input": "a", "target": "b", "en": "a", "ro": "b"}]


@pytest.mark.parametrize("row", [{"en": "a"}, {"en": "a", "ro": "b", "fr": "c"}, {"translation": ["a", "b"]}])
def test_a_row_without_two_languages_is_named(tmp_path, row):
    path = made.jsonl(tmp_path / "train.jsonl", row)
    with pytest.raises(UserError, match=r"train\.jsonl line 1 must have two texts, one a language, as en and ro, or"):
        corpus(f"wmt:{path}")


def test_of_more_texts_the_two_languages_of_the_corpus_are_taken(tmp_path):
    path = made.jsonl(tmp_path / "train.jsonl", {"id": "1", "en": "a", "de": "b", "fr": "c"})
    assert corpus(f"multi30k:{path}")["train"] == [{"input": "a", "target": "b", "en": "a", "de": "b"}]


def test_a_row_without_the_two_languages_of_the_corpus_is_named(tmp_path):
    path = made.jsonl(tmp_path / "train.jsonl", {"en": "a", "ro": "b"})
    with pytest.raises(UserError, match=r"train\.jsonl line 1 has no text in de\. It has: en, ro\."):
        corpus(f"multi30k:{path}")


def test_one_side_alone_is_refused(tmp_path):
    path = made.put(tmp_path / "train.en", "a\n")
    with pytest.raises(UserError, match=r"train\.en is one side of a pair\. Give its folder and its name without the"):
        corpus(f"wmt:{path}")


@made.needs_shared
def test_the_stored_copies_have_the_rows_that_they_should():
    found = corpus(f"multi30k:{made.SHARED / 'multi30k_en_de'}")
    counts = {part: len(rows) for part, rows in found.items()}
    assert [counts[part] for part in ("train", "dev", "test")] == [29000, 1014, 1000]
    assert [counts[part] for part in ("test_2017_flickr", "test_2017_mscoco", "test_2018_flickr")] == [1000, 461, 1071]
    expected = made.stored("multi30k_en_de/test_2016_flickr.jsonl.gz")
    assert [(row["input"], row["target"]) for row in found["test"]] == [
        (row["en"].strip(), row["de"].strip()) for row in expected
    ]
    found = corpus(f"wmt:{made.SHARED / 'wmt16_en_ro'}")
    counts = {part: len(rows) for part, rows in found.items()}
    assert counts == {"test": 1999, "train_tatoeba": 5508, "validation_flores": 1012, "validation_ntrex": 1997}
