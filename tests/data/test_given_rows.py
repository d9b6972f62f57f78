"""Rows that are given to `compare` in Python come back from a file as they were."""

import datetime
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tunescope.comparison.comparison import compare
from tunescope.data.given_rows import as_paths
from tunescope.data.read import read
from tunescope.errors import Note, UserError

ROWS = [
    {"text": "a film\u2028of two lines", "label": "pos"},
    {"text": "ein St\u00fcck", "label": 3, "more": [1, {"a": None}]},
]

CYCLE: dict[str, Any] = {"text": "a"}
CYCLE["label"] = CYCLE


class Dataset:
    """As that of the library datasets: it gives its rows one by one and knows its features."""

    def __init__(self, rows: list[dict[str, Any]], **features: Any) -> None:
        self.rows, self.features = rows, features

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: [row[name] for row in self.rows] for name in self.rows[0]}


class DataFrame:
    """As that of pandas: by itself it gives the names of its columns."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.columns = rows, list(rows[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self.rows


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    given = DataFrame(ROWS)
    given.columns = ["text", "label", "text"]
    with pytest.raises(
        UserError, match=r"compare\(data=...\): more than one column has the name 'text'. Rename all but"
    ):
        as_paths(given, tmp_path)


@pytest.mark.parametrize("kind", [list, tuple, iter, Dataset, DataFrame])
def test_rows_come_back_as_they_were(kind: Any, tmp_path: Path) -> None:
    path = as_paths(kind(ROWS), tmp_path / "runs")
    assert read(path) == ROWS
    assert path.parent == tmp_path / "runs"
    assert as_paths(kind(ROWS), tmp_path / "runs") == path
    assert as_paths(ROWS[:1], tmp_path / "runs") != path
    assert len(list(path.parent.iterdir())) == 2


def test_a_file_that_was_changed_is_written_anew(tmp_path: Path) -> None:
    path = as_paths(ROWS, tmp_path)
    path.write_text("{}\n")
    assert read(as_paths(ROWS, tmp_path)) == ROWS


def test_each_part_may_be_rows_or_a_path_and_validation_is_dev(tmp_path: Path) -> None:
    found = as_paths({"train": ROWS, "validation": ROWS[:1], "test": tmp_path / "test.csv"}, tmp_path)
    assert list(found) == ["train", "dev", "test"]
    assert (read(found["train"]), read(found["dev"])) == (ROWS, ROWS[:1])
    assert found["test"] == str(tmp_path / "test.csv")
    with pytest.raises(UserError, match=r"^data has the parts 3, train; it needs 'train' and may have"):
        compare("m", {"train": ROWS, 3: ROWS}, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"^data has the parts label, text; it needs"):
        compare("m", {"text": ["a"], "label": ["b"]}, out=tmp_path / "run")
    assert as_paths("sst2:folder", tmp_path) == "sst2:folder"


def test_numbers_of_numpy_dates_and_what_is_no_number_are_what_a_file_has_of_them(tmp_path: Path) -> None:
    row = {"int": np.int64(3), "float": np.float32(0.5), "none": math.nan, "many": np.arange(2), "flag": np.bool_(True)}
    row |= {"day": datetime.date(2026, 11, 29), "price": Decimal("1.10"), "nan": np.float32("nan")}
    row |= {"short": np.float32(3.8), "shorts": np.array([[3.8]], np.float32), "one": np.array(["only"], dtype=object)}
    row |= {"time": np.datetime64("2026-11-29T05:30:00", "ns"), "never": np.datetime64("NaT"), "no": Decimal("NaN")}
    line = Path(as_paths([row], tmp_path)).read_text()
    read_again = {"int": 3, "float": 0.5, "none": None, "many": [0, 1], "flag": True}
    read_again |= {"short": 3.8, "shorts": [[3.8]], "one": ["only"], "never": None, "no": None}
    read_again |= {"time": "2026-11-29T05:30:00.000000000"}
    assert json.loads(line) == read_again | {"day": "2026-11-29", "price": "1.10", "nan": None}


class Polars(list[Any]):
    """Rows as a frame of polars gives them: numbers of few digits as doubles, their kind by name."""

    schema = MappingProxyType({"by": "Float32", "text": "String"})

    def iter_rows(self, *, named: bool) -> Any:
        return iter(self)


def test_numbers_of_few_digits_in_frames_are_what_was_written(tmp_path: Path) -> None:
    rows = [{"by": float(np.float32(3.8)), "text": "a"}, {"by": None, "text": "b"}]
    pandas = SimpleNamespace(columns=["by", "text"], dtypes=[np.dtype("float32"), object], to_dict=lambda _: rows)
    for given in (Polars(rows), pandas):
        assert [row["by"] for row in read(as_paths(given, tmp_path))] == [3.8, None]


def test_the_names_of_a_label_are_told(tmp_path: Path) -> None:
    rows = Dataset(
        [{"text": "a", "label": 0}], text=SimpleNamespace(), label=SimpleNamespace(names=["World", "Sports"])
    )
    with pytest.warns(Note, match=r"'label' holds numbers for names.*: words=\{'0': 'World', '1': 'Sports'\}"):
        as_paths(rows, tmp_path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "was given no rows"),
        (["a", "b"], r"it was given: list of str"),
        (5, "it was given: int"),
        ([{"text": "a"}, {"text": object()}], "row 2: no file of rows holds a value of the kind object"),
        ([{"text": "\ud800"}], "row 1: 'text' holds half of a surrogate pair"),
        ([CYCLE], "row 1: maximum recursion depth exceeded"),
        ([{("a", "b"): 1}], "row 1: keys must be str"),
    ],
)
def test_what_is_no_rows_is_refused_and_nothing_is_written(given: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"compare\(data=\.\.\.\).*{told}") as caught:
        as_paths(given, tmp_path)
    assert str(caught.value).count("compare(") == 1
    with pytest.raises(UserError, match=rf"compare\(data=\{{'test': \.\.\.\}}\).*{told}"):
        as_paths({"test": given}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError, match="runs cannot be a folder: a file has that name"):
        as_paths(ROWS, tmp_path / "runs")


@pytest.mark.parametrize("form", [None, "numpy", "torch", "pandas"])
def test_a_dataset_of_the_library_datasets_gives_its_rows(form: str | None, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    names = datasets.ClassLabel(names=["neg", "pos"])
    texts = datasets.Features({"text": datasets.Value("string"), "label": names, "by": datasets.Value("float32")})
    rows = [{"text": "ein Stück", "label": 1, "by": 3.8}, {"text": "a film", "label": 0, "by": None}]
    given = datasets.DatasetDict({part: datasets.Dataset.from_list(rows, features=texts) for part in ("train", "test")})
    with pytest.warns(Note, match=r"To ask for these: words=\{'0': 'neg', '1': 'pos'\}"):
        found = as_paths(given.with_format(form), tmp_path)
    for path in found.values():
        assert read(path) == rows


@pytest.mark.parametrize("kind", ["pandas.DataFrame", "polars.DataFrame", "pyarrow.Table.from_pylist"])
def test_tables_give_their_rows(kind: str, tmp_path: Path) -> None:
    library, *path = kind.split(".")
    make: Any = pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    for name in path:
        make = getattr(make, name)
    rows = [
        {"text": "ein Stück", "label": 1, "by": 3.5, "more": ["a"]},
        {"text": "a", "label": 0, "by": 0.25, "more": []},
    ]
    assert read(as_paths(make(rows), tmp_path)) == rows


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, np.float32("inf"), np.array([1.0, np.inf]), {"deep": [math.inf]}]
)
def test_an_infinite_number_is_refused_as_in_a_file(value: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"row 2: -?inf is no number of JSON\. Make it a text or a number"):
        as_paths([{"text": "a", "score": 1.0}, {"text": "b", "score": value}], tmp_path)
    assert not list(tmp_path.glob("rows-*"))
