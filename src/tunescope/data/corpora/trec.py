"""TREC questions: which of six kinds of answer is asked for (train_5500.label and TREC_10.label; or JSONL)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, line_of, place, value
from tunescope.data.rows_of_file import content
from tunescope.errors import UserError

SOURCE = "Li and Roth 2002, aclanthology.org/C02-1150; cogcomp.seas.upenn.edu/Data/QA/QC"
LABELS = {"ABBR": "abbreviation", "DESC": "description", "ENTY": "entity", "HUM": "human"}
LABELS |= {"LOC": "location", "NUM": "number"}
OFFICIAL = {"train": ("train_5500.label",), "test": ("TREC_10.label",)}


def splits(folder: Path) -> dict[str, _places.Files]:
    """The authors' two files; JSONL copies by their own names."""
    return _places.named(folder, OFFICIAL)


def rows(files: _places.Files) -> Found:
    """input: "trec question: ..."; label: one of the six coarse classes, in words.

    Raises:
        UserError: a field is missing, or a class is none of the six.
    """
    path = files[0]
    sources = list(_lines(path)) if path.name.removesuffix(".gz").endswith(".label") else of_any_length(path)
    found = []
    for index, source in enumerate(sources):
        text, given = value(source, "text", index).strip(), value(source, "coarse", index)
        if given not in LABELS:
            raise UserError(f"{place(source, index)}: class {given} is none of {', '.join(LABELS)}. Correct it.")
        made = {"input": f"trec question: {text}", "target": LABELS[given], "text": text, "label": LABELS[given]}
        found.append(Row(made, path.name, line_of(source, index)))
    return Found(found)


def _lines(path: Path) -> Iterator[Row]:
    """ "DESC:manner How did serfdom develop ?" a line, in the authors' Latin-1."""
    for number, line in enumerate(content(path).decode("latin-1").split("\n"), 1):
        if line.strip():
            name, _, text = line.partition(" ")
            yield Row({"coarse": name.partition(":")[0], "text": text}, path.name, number)
