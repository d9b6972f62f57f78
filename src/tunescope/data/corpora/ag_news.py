"""AG News: which of four topics a piece of news is about (train.csv and test.csv; or JSONL with text and label)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, line_of, place, value
from tunescope.data.rows_of_file import text_of
from tunescope.errors import UserError

SOURCE = "Zhang et al. 2015, arXiv:1509.01626, of Gulli's corpus; non-commercial use"
LABELS = {"0": "world", "1": "sports", "2": "business", "3": "technology"}
OFFICIAL = {"train": ("train.csv",), "test": ("test.csv",)}


def splits(folder: Path) -> dict[str, _places.Files]:
    """The authors' two files; JSONL copies by their own names, a single train_* as train."""
    return _places.renamed(_places.named(folder, OFFICIAL), {"train": ("train_*k",)})


def rows(files: _places.Files) -> Found:
    """input: "ag_news text: ..."; text: the title and the description; label: the topic in a word.

    Raises:
        UserError: a field is missing, or a label is none of the four.
    """
    path = files[0]
    sources = list(_lines(path)) if path.name.removesuffix(".gz").endswith(".csv") else of_any_length(path)
    found = []
    for index, source in enumerate(sources):
        text, given = value(source, "text", index).strip(), value(source, "label", index)
        if given not in LABELS:
            raise UserError(f"{place(source, index)}: label {given} is none of {', '.join(LABELS)}. Correct it.")
        made = {"input": f"ag_news text: {text}", "target": LABELS[given], "text": text, "label": LABELS[given]}
        found.append(Row(made, path.name, line_of(source, index)))
    return Found(found)


def _lines(path: Path) -> Iterator[Row]:
    """ "3","The title","The description" a line, without a header, the classes counted from 1."""
    lines = csv.reader(io.StringIO(text_of(path), newline=""), strict=True)
    try:
        for fields in lines:
            if len(fields) != 3 or not fields[0].isdecimal():
                raise UserError(f'{path.name} line {lines.line_num} is no "CLASS","TITLE","DESCRIPTION". Take it anew.')
            made = {"label": str(int(fields[0]) - 1), "text": f"{fields[1]} {fields[2]}"}
            yield Row(made, path.name, lines.line_num)
    except csv.Error as problem:
        raise UserError(f"{path.name} line {lines.line_num} is not CSV ({problem}). Take it anew.") from None
