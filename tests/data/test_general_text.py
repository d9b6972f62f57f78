import gzip
import json

import pytest

from tunescope.data import general_text as module
from tunescope.data.general_text import general_text
from tunescope.data.texts import texts
from tunescope.errors import UserError


def test_the_bundled_prose_is_30_kilobytes_of_plain_english_out_of_the_books_that_are_named():
    text = general_text()
    assert text.isascii() and 29_000 < len(text) < 32_000
    for name in ("Miss Fairfax", "Lady Russell", "Elinor", "Alice", "Turnbull", "Flambeau", "Professor", "whale"):
        assert name in text
    assert "Gutenberg" not in text and "_" not in text


def test_a_part_of_a_corpus_gives_its_texts(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "one", "label": 0}\n{"text": "two", "label": 1}\n')
    assert texts(f"sst2:{tmp_path}#train", 9) == ["one", "two"]
    with pytest.raises(UserError, match="several parts"):
        texts(f"sst2:{tmp_path}", 9)


def test_a_file_of_lines_and_one_of_rows_give_their_texts(tmp_path):
    (tmp_path / "a.txt").write_bytes("one line\r\n\n  another\u2028\x0cto its end \n".encode())
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": "a row"}).encode()))
    assert general_text(str(tmp_path / "a.txt")) == "one line\nanother\u2028\x0cto its end"
    assert general_text(str(tmp_path / "a.jsonl.gz")) == "a row"


def test_a_row_of_any_length_is_read_for_its_first_characters(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "word " * 250_000}) + "\n")
    assert general_text(str(tmp_path / "a.jsonl")) == ("word " * 250_000)[:200_000]


def test_of_a_long_file_its_first_characters_are_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 10)
    (tmp_path / "a.txt").write_text("0123456789abc\n")
    assert general_text(str(tmp_path / "a.txt")) == "0123456789"


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "--forgetting: Cannot read .*a.txt: No such file"), (b" \n", "--forgetting: .*a.txt is empty")],
)
def test_a_file_that_is_not_there_or_empty_is_refused_in_one_line(tmp_path, content, says):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        general_text(str(tmp_path / "a.txt"))
    assert "\n" not in str(caught.value)


def test_a_damaged_gzip_file_is_refused_in_one_line(tmp_path):
    packed = bytearray(gzip.compress(b"one line\n" * 50))
    packed[10] = 0xFF  # a block of a type that there is not (RFC 1951, 3.2.3)
    (tmp_path / "a.txt.gz").write_bytes(packed)
    with pytest.raises(
        UserError, match=r"^--forgetting: .*a\.txt\.gz is not a whole gzip file \(.*Compress it again"
    ) as caught:
        general_text(str(tmp_path / "a.txt.gz"))
    assert "\n" not in str(caught.value)


def test_parquet_packed_once_more_is_told_to_be_unpacked(tmp_path):
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(UserError, match=r"^--forgetting: .*packed by itself\. Unpack it: gunzip .*a\.parquet\.gz$"):
        general_text(str(tmp_path / "a.parquet.gz"))


def test_lines_without_a_text_are_not_among_those_that_are_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("\none\n \ntwo\nthree\n")
    assert texts(str(tmp_path / "a.txt"), 2) == ["one", "two"]
