"""A Parquet file is the rows that it was written from; what is no Parquet is refused in a line."""

import datetime
import decimal
import json
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from tunescope.data.given_rows import as_paths
from tunescope.data.read import read
from tunescope.data.row import value
from tunescope.data.texts import texts
from tunescope.errors import Note, UserError
from tunescope.system import label_pairs
from tunescope.system.say import shown

pyarrow = pytest.importorskip("pyarrow", reason="the package pyarrow writes and reads the files")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = [
    {"text": "A gorgeous film.", "label": 1, "score": 4.5, "known": True, "tags": ["a", "b"], "of": {"year": 1999}},
    {"text": "Zäh wie Ω.", "label": 0, "score": 1.0, "known": False, "tags": [], "of": {"year": None}},
]


def written(path, rows, features=None, **options):
    table = pyarrow.Table.from_pylist(rows)
    if features is not None:
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, path, **options)
    return str(path)


@pytest.mark.parametrize("packed", ["snappy", "zstd", "none"])
def test_rows_are_those_of_the_same_in_jsonl(packed, tmp_path):
    path = written(tmp_path / "rows.parquet", ROWS, compression=packed, row_group_size=1)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    found = read(path)
    assert found == read(tmp_path / "rows.jsonl") == ROWS
    assert [(row.file, row.line) for row in found] == [("rows.parquet", 1), ("rows.parquet", 2)]
    assert texts(path, 1) == ["A gorgeous film."]


def test_words_of_a_dictionary_are_texts_and_folders_make_no_columns(tmp_path):
    folder = tmp_path / "label=3"  # which readers of data sets take for a column
    folder.mkdir()
    table = pyarrow.table({"text": pyarrow.array(["a", "b", "a"]).dictionary_encode()})
    parquet.write_table(table, folder / "a.parquet")
    assert read(folder / "a.parquet") == [{"text": "a"}, {"text": "b"}, {"text": "a"}]


def test_dates_and_decimals_are_texts_and_bytes_are_no_field(tmp_path):
    day = datetime.datetime(2026, 11, 28, 5, 30)
    row = {"day": day.date(), "at": day, "price": decimal.Decimal("3.50"), "picture": b"\x89PNG"}
    nanoseconds = pyarrow.array([1], pyarrow.timestamp("ns"))
    table = pyarrow.Table.from_pylist([row]).append_column("exact", nanoseconds)
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")[0]
    assert [value(found, name, 0) for name in ("day", "price")] == ["2026-11-28", "3.50"]
    assert found["at"].startswith("2026-11-28 05:30:00") and found["exact"] == "1970-01-01 00:00:00.000000001"
    with pytest.raises(UserError, match=r"a.parquet line 1: 'picture' is a bytes, where text or a number is needed"):
        value(found, "picture", 0)


def test_numbers_of_half_the_digits_are_read_as_they_are_written(tmp_path):
    half = pyarrow.array(np.array([3.8, 0.1, 2, -1e-4], np.float16), mask=np.array([False, False, True, False]))
    single = pyarrow.array([3.8, 0.1, None, -1e-7], pyarrow.float32())
    made = {"half": half, "single": single, "double": [3.8, 0.1, None, 1 / 3]}
    parquet.write_table(pyarrow.table(made), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert [row["half"] for row in found] == [3.8, 0.1, None, -1e-4]
    assert read(as_paths(pyarrow.table(made), tmp_path)) == found  # and as a table in memory
    assert [row["single"] for row in found] == [3.8, 0.1, None, -1e-7]
    assert [row["double"] for row in found] == [3.8, 0.1, None, 1 / 3]


def test_a_conversation_is_read(tmp_path):
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
    found = read(written(tmp_path / "a.parquet", [{"messages": turns}]))
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": turns}))
    assert found == read(tmp_path / "a.jsonl")


def test_keys_of_turns_that_are_null_everywhere_are_null(tmp_path):
    turns = [{"role": "user", "content": "Hello", "tool": None}, {"role": "assistant", "content": "Hi.", "tool": None}]
    found = read(written(tmp_path / "a.parquet", [{"messages": turns, "at": datetime.date(2026, 1, 2)}] * 2))
    (tmp_path / "a.jsonl").write_text(f"{json.dumps({'messages': turns, 'at': '2026-01-02'})}\n" * 2)
    assert found == read(tmp_path / "a.jsonl")


def test_a_column_that_cannot_be_read_is_named(tmp_path):
    for name, one in {
        "zone": pyarrow.array([1], pyarrow.timestamp("us", tz="Mars/Olympus")),
        "twice": pyarrow.StructArray.from_arrays([pyarrow.array([1])] * 2, names=["a", "a"]),
    }.items():
        parquet.write_table(pyarrow.table({"text": ["A film."], name: one}), tmp_path / "a.parquet")
        told = problem(tmp_path / "a.parquet")
        assert f"a.parquet: pyarrow cannot read the column '{name}': " in told
        assert told.endswith(". Leave it out.") and "\n" not in told


def test_names_of_labels_are_told_once_as_they_are_typed(tmp_path):
    features = {"label": {"names": ["bad, dull", "good"], "_type": "ClassLabel"}, "text": {"_type": "Value"}}
    path = written(tmp_path / "a.parquet", ROWS, features)
    with pytest.warns(
        Note, match=r"'label' holds numbers for names. To ask for these: --words '0=bad\\, dull,1=good'$"
    ):
        assert [row["label"] for row in read(path)] == [1, 0]


def test_names_of_many_labels_are_shown_whole_and_are_typed_as_they_stand(tmp_path):
    names = [f"why was this card payment of mine declined, number {index}" for index in range(77)]
    path = written(tmp_path / "a.parquet", ROWS, {"label": {"names": names, "_type": "ClassLabel"}})
    with pytest.warns(Note) as told:
        read(path)
    typed = shown(str(told[0].message)).partition("To ask for these: ")[2]
    lines = subprocess.run(["sh", "-c", f"printf '%s\\n' {typed}"], capture_output=True, text=True, check=True).stdout
    option, *words = lines.splitlines()
    given = [word for word in words if word != option]
    assert option == "--words" and label_pairs.pairs(option, given) == {str(at): name for at, name in enumerate(names)}


def test_a_corpus_which_has_words_of_its_own_for_numbers_is_read_without_them(tmp_path):
    features = {"label": {"names": ["negative", "positive"], "_type": "ClassLabel"}}
    rows = [{"sentence": "It drags.", "label": 0, "idx": 0}, {"sentence": "A gorgeous film.", "label": 1, "idx": 1}]
    path = written(tmp_path / "train-00000-of-00001.parquet", rows, features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [(row["text"], row["label"]) for row in read(f"sst2:{path}")] == [
            ("It drags.", "negative"),
            ("A gorgeous film.", "positive"),
        ]


@pytest.mark.parametrize(
    "features", [[], {"label": 3}, {"label": {"_type": "ClassLabel"}}, {"label": {"names": [1], "_type": "ClassLabel"}}]
)
def test_what_other_programs_wrote_beside_the_rows_is_no_fault(features, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(written(tmp_path / "a.parquet", ROWS, features)) == ROWS


def problem(path):
    with pytest.raises(UserError) as found:
        read(path)
    return str(found.value)


def test_what_is_no_whole_file_is_refused_in_a_line(tmp_path):
    data = Path(written(tmp_path / "whole.parquet", ROWS)).read_bytes()
    for name, cut in {"cut": data[:-9], "text": b"text\nA film.\n", "middle": data[:4] + bytes(60) + data[64:]}.items():
        (tmp_path / f"{name}.parquet").write_bytes(cut)
        told = problem(tmp_path / f"{name}.parquet")
        assert "is no whole Parquet file, by pyarrow: " in told and "\n" not in told
    assert "Cannot read" in problem(tmp_path / "none.parquet")
    (tmp_path / "empty.parquet").write_bytes(b"")
    assert "is empty" in problem(tmp_path / "empty.parquet")
    assert "has no rows" in problem(written(tmp_path / "b.parquet", []))


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    assert "has the column 'text' twice" in problem(tmp_path / "a.parquet")


def test_without_the_package_or_with_an_old_one_the_line_says_what_to_type(tmp_path, monkeypatch):
    path = written(tmp_path / "a.parquet", ROWS)
    monkeypatch.setattr(pyarrow, "__version__", "14.0.2")
    assert "Type: pip install --upgrade pyarrow" in problem(path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert problem(path).endswith("which the package pyarrow reads. Type: pip install pyarrow")
