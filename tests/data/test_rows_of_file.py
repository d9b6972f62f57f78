import csv
import gzip
import hashlib
import io
import json
import shlex
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunescope.data import rows_of_file
from tunescope.data.read import read, sha256
from tunescope.data.row import MissingField, Row, every_row, value
from tunescope.errors import Note, UserError

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)
tables = st.lists(names, min_size=1, max_size=4, unique=True).flatmap(
    lambda header: st.tuples(
        st.just(header), st.lists(st.lists(texts, min_size=len(header), max_size=len(header)), min_size=1)
    )
)
one_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def write(path, content):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def problem(path):
    with pytest.raises(UserError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@one_file
@given(
    rows=st.lists(st.dictionaries(texts, texts | st.integers() | st.booleans() | st.none()), min_size=1),
    ascii_only=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    mark=st.booleans(),
    suffix=st.sampled_from([".jsonl", ".ndjson", ".jsonl.gz"]),
)
def test_what_json_writes_is_read_back(tmp_path, rows, ascii_only, end, mark, suffix):
    content = end.join(json.dumps(row, ensure_ascii=ascii_only) for row in rows).encode()
    path = write(tmp_path / f"rows{suffix}", (b"\xef\xbb\xbf" if mark else b"") + content)
    got = read(path)
    assert got == rows
    assert [row.line for row in got] == [1 + i * end.count("\n") for i in range(len(rows))]


@one_file
@given(table=tables, end=st.sampled_from(["\n", "\r\n"]), mark=st.booleans())
def test_what_csv_writes_is_read_back(tmp_path, table, end, mark):
    header, rows = table
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([header, *rows])
    path = write(tmp_path / "rows.csv", ("\ufeff" if mark else "") + out.getvalue())
    assert read(path) == [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.filterwarnings("ignore::tunescope.errors.Note")  # of cells that look quoted
@one_file
@given(table=tables, end=st.sampled_from(["\n", "\r\n"]))
def test_tsv_has_one_row_a_line_and_no_quoting(tmp_path, table, end):
    header, rows = ([[cell.replace("\t", "").replace("\n", "").replace("\r", "") + '"' for cell in row]
                     for row in ([table[0]] + table[1])][i] for i in (0, slice(1, None)))  # fmt: skip
    content = end.join("\t".join(row) for row in [header, *rows])
    got = read(write(tmp_path / "rows.tsv", content))
    assert got == [dict(zip(header, row, strict=True)) for row in rows]
    assert [row.line for row in got] == list(range(2, len(rows) + 2))


def test_quotes_of_csv_in_a_tsv_are_kept_and_told(tmp_path):
    cells = ['"He said ""no""."', '"in quotes"', '""', 'a ""word""', '"one" and ""two"""']
    path = write(tmp_path / "a.tsv", "\n".join(["text", *cells]))
    with pytest.warns(
        Note, match=r"a\.tsv: 1 of the fields look quoted as in CSV\. .* their quotes are text: .* as CSV\.$"
    ):
        assert [row["text"] for row in read(path)] == cells


def test_a_csv_row_has_the_line_it_begins_on(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"one\ntwo",x\n\n"big' + "g" * 200_000 + '",y\n')
    limit = csv.field_size_limit()
    rows = read(path)
    assert [(row.file, row.line) for row in rows] == [("a.csv", 2), ("a.csv", 5)]
    assert rows[0] == {"text": "one\ntwo", "label": "x"}
    assert csv.field_size_limit() == limit


def test_unusual_line_separators_inside_a_json_string_do_not_end_the_line(tmp_path):
    row = {"text": "a\u2028b\x85c\x0bd"}
    assert read(write(tmp_path / "a.jsonl", json.dumps(row, ensure_ascii=False))) == [row]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", ["is empty"]),
        ("a.jsonl", "\ufeff", ["has no rows"]),
        ("a.csv", "\ufeff", ["has no rows"]),
        ("a.csv", "text,label\n", ["has no rows"]),
        ("a.jsonl", " \n\n", ["is empty"]),
        ("a.jsonl", '{"a": 1}\n{"a": \n', ["line 2 is not JSON", "reads '{\"a\":'", "one whole object"]),
        ("a.jsonl", '{"a": "' + "x" * 99 + '"', ["line 1 is not JSON", "xxx...'"]),
        (
            "a.jsonl",
            '{"a": 1}\n{\n\n[1]\n{2\n' + "[" * 99_999,
            ["line 2 is not", "reads '{'. The same holds of lines 5, 6. Each"],
        ),
        ("a.jsonl", "{\n" * 9, ["line 1 is not JSON", "The same holds of lines 2, 3, 4, 5 and 4 more. Each"]),
        ("a.csv", "text,label\na\nb,c\n\nd,e,f\n", ["line 2 has 1 fields", "row. The same holds of line 5."]),
        ("a.jsonl", '{"a": NaN}', ["line 1 is not JSON", "NaN is not a JSON number"]),
        ("a.jsonl", '{"a": 1}\n{"a": 1e999}', ["line 2 is not JSON", "1e999 is beyond the largest number"]),
        ("a.jsonl", '{"a": -' + "1" * 5000 + "}", ["a number of 5,000 digits, where 4,300 are read at most"]),
        ("a.jsonl", '{"a": [-2e999]}', ["line 1 is not JSON", "-2e999 is beyond the largest number"]),
        ("a.jsonl", '{"a": 1, "a": 2}', ["line 1", "the field 'a' is there twice"]),
        ("a.jsonl", "[" * 100_000, ["line 1 is not JSON", "nested too deeply"]),
        ("a.jsonl", '[{"a": 1}]', ["line 1 is a list, not an object", "jq -c '.[]'"]),
        ("a.jsonl", '{"a": 1}\n\n"b"', ["line 3 is a str, not an object"]),
        ("a.jsonl", b'{"a": "x"}\n{"a": "\xe9"}', ["line 2: byte 18 (0xe9) is not UTF-8", "iconv -f LATIN1"]),
        ("a.jsonl", b'\xef\xbb\xbf{"a": "\xe9"}', ["line 1: byte 10 (0xe9) is not UTF-8"]),
        ("a.jsonl", '{"a": 1}'.encode("utf-16"), ["byte 0 (0xff)", "iconv -f UTF-16", "looks like UTF-16"]),
        (
            "a.jsonl",
            gzip.compress(b'{"a": 1}', mtime=0),
            ["is packed by gzip, and its name does not say so: mv ", "a.jsonl.gz"],
        ),
        (
            "a.jsonl",
            b"PAR1\x15\x04\xd8\0",
            ["is Parquet, and its name does not say so: mv ", "a.jsonl ", "a.parquet"],
        ),
        ("a.csv", "text\na\nb\0c", ["line 3 holds a NUL", "tr -d"]),
        ("a.jsonl", '{"a": "b\\u0000"}', ["line 1: 'a' holds a NUL"]),
        ("a.jsonl", '{"a": "b\\ud83d"}', ["line 1: 'a' holds half of a surrogate pair"]),
        ("a.csv", 'text,label\n"a,b\n', ["the row that begins on line 2 is not CSV", 'inside it as "".']),
        ("a.csv", "text,label\na,b\na,b,c\n", ["line 3 has 3 fields, and the header has 2 (text, label)"]),
        ("a.tsv", "text\tlabel\na\n", ["line 2 has 1 fields, and the header has 2 (text, label)"]),
        ("a.csv", 'text,"la\nbel"\na\n', ["line 3 has 1 fields, and the header has 2 (text, la bel)"]),
        ("a.csv", "text,text\na,b\n", ["line 1: the header must name each column once", "'text', 'text'"]),
        ("a.tsv", "text\t\na\tb\n", ["line 1: the header must name each column once", "'text', ''"]),
        ("a.json", "{}", ["'.json' is not known", ".jsonl, .ndjson, .csv, .tsv", "with .gz"]),
    ],
)
def test_a_fault_is_named_with_its_line_and_a_remedy(tmp_path, name, content, words):
    message = problem(write(tmp_path / name, content))
    assert name in message
    for word in words:
        assert word in message


def test_files_that_cannot_be_opened_are_named(tmp_path):
    assert "no.jsonl: No such file or directory. Check the path." in problem(tmp_path / "no.jsonl")
    (tmp_path / "d.csv").mkdir()
    assert "is a folder, and rows are in a file" in problem(tmp_path / "d.csv")
    assert "reviews: No such file or directory" in problem(tmp_path / "reviews")  # and not that it lacks an ending
    assert "is a folder" in problem(tmp_path)
    assert "No such file" in problem(tmp_path / ("x" * 300))
    assert "No such file" in problem(tmp_path / f"{'x' * 300}.jsonl")
    with pytest.raises(UserError, match="No such file"):
        sha256(tmp_path / "no.jsonl")


def test_a_plain_file_named_as_packed_is_told_to_be_renamed(tmp_path):
    (tmp_path / "a.jsonl.gz").write_text('{"a": 1}')
    told = f"is not packed by gzip, and its name says so: mv {tmp_path}/a.jsonl.gz {tmp_path}/a.jsonl"
    assert told in problem(tmp_path / "a.jsonl.gz")


@pytest.mark.parametrize("content", [gzip.compress(b"x" * 999, mtime=0)[:-9], b"\x1f\x8b\x08\0\0\0\0\0\0\0zz"])
def test_a_broken_gzip_file_is_named(tmp_path, content):
    (tmp_path / "a.jsonl.gz").write_bytes(content)
    assert "a.jsonl.gz is not a whole gzip file" in problem(tmp_path / "a.jsonl.gz")


def test_the_hash_is_of_the_bytes_on_the_disk(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", '{"a": 1}')
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_values_become_text_as_json_writes_them():
    row = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": ""}
    assert [value(row, name, 0) for name in row] == ["x", "1", "1.5", "true", ""]


def test_a_missing_or_null_field_is_named_with_what_there_is():
    row = Row({"sentence": "x", "label": None, "more": [1]}, "a.jsonl", 7)
    for field, words in {
        "sentense": " has no field 'sentense'. Did you mean 'sentence'? It has: sentence, label, more.",
        "zzz": " has no field 'zzz'. It has: sentence, label, more.",
        "label": ": 'label' is null, where text or a number is needed. Fill it in or delete the row.",
        "more": ": 'more' is a list, where text or a number is needed. Make it text, or name another field.",
    }.items():
        with pytest.raises(UserError) as caught:
            value(row, field, 0)
        assert str(caught.value) == "a.jsonl line 7" + words
    with pytest.raises(
        UserError, match=r"It has: text;label\. Fields of a \.csv are separated by commas, and not by ';'"
    ):
        value({"text;label": "a;b"}, "text", 0)
    with pytest.raises(UserError, match="row 3 has no field"):
        value({"a": 1}, "b", 2)


def test_a_fault_of_several_rows_is_told_once_with_their_lines():
    texts: list[object] = ["a", None, "b", None, [1], None, None]
    rows = [Row({"text": text, "label": "x"}, "a.jsonl", line) for line, text in enumerate(texts, start=2)]

    def read(row, index):
        return value(row, "text", index)

    assert every_row(rows[::2][:2], read) == ["a", "b"]
    told = "'text' is null, where text or a number is needed. Fill it in or delete the row."
    for some, first, others in (
        (rows[:2], "a.jsonl line 3", ""),
        (rows, "a.jsonl line 3", " The same holds of lines 5, 7, 8."),
        ([*rows[:5], Row({"text": None}, "b.jsonl", 1)], "a.jsonl line 3", " The same holds of line 5."),
        (rows * 50, "a.jsonl line 3", " The same holds of lines 5, 7, 8, 3 and 195 more."),
        ([dict(row) for row in rows], "row 2", " The same holds of lines 4, 6, 7."),
    ):
        with pytest.raises(UserError) as caught:
            every_row(some, read)
        assert str(caught.value) == f"{first}: {told}{others}"
    with pytest.raises(MissingField, match=r"^a\.jsonl line 2 has no field 'txt'\. .* holds of line 3\.$") as missing:
        every_row([*rows[:2], Row({"txt": "a"}, "a.jsonl", 4)], lambda row, index: value(row, "txt", index))
    assert (missing.value.field, missing.value.close) == ("txt", "text")
    with pytest.raises(MissingField, match=r"It has: text, label\.$"):  # all rows lack it, and one line is as good
        every_row(rows, lambda row, index: value(row, "txt", index))


def test_a_gzip_file_that_grows_a_hundredfold_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_of_file, "SMALL", 2**16)
    line = b'{"text": "a film that was bright", "label": "pos"}\n'
    assert len(read(write(tmp_path / "well.jsonl.gz", line * 1000))) == 1000
    bomb = write(tmp_path / "bomb.jsonl.gz", line + b" " * 2**24)
    assert bomb.stat().st_size < 2**15
    tracemalloc.start()
    assert f"unpacks to more than {max(2**16, 100 * bomb.stat().st_size):,} bytes, 100 times its own" in problem(bomb)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_a_field_that_takes_minutes_is_refused_by_line_unless_it_is_asked_for(tmp_path):
    rows = [{"text": "x" * length, "label": "a"} for length in (5, 1_000_001, 7, 2_000_000)]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert problem(path) == (
        "a.jsonl line 2: 'text' has 1,000,001 characters, where at most 1,000,000 are read (2 such texts in all). "
        "Shorten the text or leave the row out; or let a comparison read it: --longest-field 2000000"
    )
    assert read(path, 2_000_000) == rows
    with pytest.raises(UserError, match=r"a\.jsonl line 2: 'text' has 1,000,001 characters, where at most 6 are"):
        read(path, 6)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_number_that_is_none_has_no_text(number):
    with pytest.raises(UserError, match=f"row 1: 'a' is {number}, where text or a number is needed"):
        value({"a": number}, "a", 0)


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("a.xlsx", "read_excel"),
        ("a.feather", "read_feather"),
        ("it's $HOME \"`x`.xlsx", "read_excel"),
    ],
)
def test_a_table_that_renaming_never_helps_is_told_how_to_be_converted(tmp_path, name, reader):
    path = write(tmp_path / name, "PAR1")
    (tmp_path / "pandas.py").write_text(
        "import json\n\nclass Table:\n"
        "    def __init__(self, path): self.path = path\n"
        "    def to_json(self, path, **fields): print(json.dumps([self.path, path, fields]))\n\n"
        f"{reader} = Table\n"
    )
    for free in (path.with_suffix(".jsonl"), path.with_suffix(".2.jsonl"), path.with_suffix(".3.jsonl")):
        told = problem(path)
        assert "Rename" not in told
        typed = told.partition("Convert it with pandas: ")[2].replace("python", shlex.quote(sys.executable), 1)
        done = subprocess.run(typed, shell=True, cwd=tmp_path, capture_output=True, check=True)
        assert json.loads(done.stdout) == [str(path), str(free), {"orient": "records", "lines": True}]
        free.write_text("{}")  # so that it would be lost
    assert problem(write(tmp_path / "a.txt", "PAR1")).endswith("Rename or convert the file.")
