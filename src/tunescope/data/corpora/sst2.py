"""SST-2: is the sentence positive or negative (GLUE's TSV; or JSONL with text and label)."""

from __future__ import annotations

from pathlib import Path

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found, row
from tunescope.data.read import of_any_length
from tunescope.data.row import place, value
from tunescope.errors import UserError

SOURCE = "Socher et al. 2013, aclanthology.org/D13-1170; in GLUE, Wang et al. 2018, gluebenchmark.com"
LABELS = {"0": "negative", "1": "positive"}
OFFICIAL = {"train": ("train.tsv",), "test": ("dev.tsv",)}


def splits(folder: Path) -> dict[str, _places.Files]:
    """GLUE's dev.tsv is the test part: the labels of its test.tsv are not public. JSONL copies by their own names."""
    return _places.named(folder, OFFICIAL)


def rows(files: _places.Files) -> Found:
    """input: "sst2 sentence: ..."; label: negative or positive.

    Raises:
        UserError: a field is missing, or a label is neither 0 nor 1.
    """
    found = []
    for index, source in enumerate(of_any_length(files[0])):
        text = value(source, "sentence" if "sentence" in source else "text", index).strip()
        given = value(source, "label", index)
        if given not in LABELS:
            raise UserError(f"{place(source, index)}: label {given} is none of {', '.join(LABELS)}. Correct it.")
        made = {"input": f"sst2 sentence: {text}", "target": LABELS[given], "text": text, "label": LABELS[given]}
        found.append(row(made, source))
    return Found(found)
