import csv
import json
import resource
from datetime import timedelta
from pathlib import Path

import pytest

from tunescope.data.read import read
from tunescope.data.write import check_new, new_file
from tunescope.errors import UserError

ROWS = [
    {"text": 'a "word",\nand\u2028more', "label": "x", "score": 0.5, "list": ["é", 1]},
    {"text": "", "label": None, "score": 2, "more": True},
]
NAMES = ["text", "label", "score", "list", "more"]


def written(path):
    with new_file(path, NAMES) as put:
        for row in ROWS:
            put(row)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.NDJSON"])
def test_jsonl_has_the_rows_as_they_are(tmp_path, name):
    path = written(tmp_path / name)
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] == ROWS
    assert "é" in path.read_text(encoding="utf-8")
    assert read(written(tmp_path / "again.jsonl")) == ROWS


def test_csv_has_every_field_empty_where_a_row_has_none(tmp_path):
    path = written(tmp_path / "a.csv")
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == NAMES
    assert rows == [[ROWS[0]["text"], "x", "0.5", '["é", 1]', ""], ["", "", "2", "", "true"]]
    assert [row["text"] for row in read(path)] == [row["text"] for row in ROWS]


def test_each_row_is_there_as_soon_as_it_was_put(tmp_path):
    path = tmp_path / "a.jsonl"
    with new_file(path, NAMES) as put:
        put(ROWS[0])
        assert read(path) == ROWS[:1]
        put(ROWS[1])
    assert read(path) == ROWS


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_disk_that_is_full_leaves_whole_rows(tmp_path, name):
    """What is answered later may be put behind them."""
    path, whole = tmp_path / name, 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(UserError, match=rf"{name} cannot be written: File too large"):  # noqa: PT012
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
            with new_file(path, ["text"]) as put:
                for _ in range(100):
                    put({"text": 'a long "text",\nin two lines'})
                    whole += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read(path) == [{"text": 'a long "text",\nin two lines'}] * whole and whole > 3


def test_a_file_that_is_removed_while_it_is_written_is_told(tmp_path):
    path = tmp_path / "a.jsonl"
    put_all = new_file(path, NAMES)
    put_all.__enter__()(ROWS[0])
    path.unlink()
    with pytest.raises(UserError, match=r"a\.jsonl was removed while it was written"):
        put_all.__exit__(None, None, None)


def test_another_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("mine")
    with pytest.raises(UserError, match=r"a\.csv is there already, and is left as it is\. Give another name\.$"):
        written(path)
    assert path.read_text() == "mine"
    with pytest.raises(UserError, match=r"a\.xlsx: the name tells the format\. Allowed: \.jsonl, \.ndjson, \.csv$"):
        check_new(tmp_path / "a.xlsx")
    with pytest.raises(UserError, match=r"none is no folder\. Make it, or give a file in another\.$"):
        written(Path(tmp_path / "none" / "a.csv"))


def test_what_json_has_no_form_for_is_written_all_the_same(tmp_path):
    path = tmp_path / "a.jsonl"
    with new_file(path, ["a", "b"]) as put:
        put({"a": float("nan"), "b": {"bytes": b"\xff", "for": timedelta(days=1)}})
    assert read(path) == [{"a": None, "b": {"bytes": "b'\\xff'", "for": "1 day, 0:00:00"}}]
