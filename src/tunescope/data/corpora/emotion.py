"""Emotion of TweetEval: anger, joy, optimism or sadness (train_text.txt with train_labels.txt; or JSONL)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, line_of, place, value
from tunescope.data.rows_of_file import text_of
from tunescope.errors import UserError

SOURCE = "Mohammad et al. 2018, SemEval task 1; in TweetEval, Barbieri et al. 2020, arXiv:2010.12421"
LABELS = {"0": "anger", "1": "joy", "2": "optimism", "3": "sadness"}
PARTS = {"train": "train", "dev": "val", "test": "test"}


def splits(folder: Path) -> dict[str, _places.Files]:
    """The authors' texts and labels, two files a part; JSONL copies by their own names."""
    pairs = {part: (folder / f"{name}_text.txt", folder / f"{name}_labels.txt") for part, name in PARTS.items()}
    official: dict[str, _places.Files] = {part: two for part, two in pairs.items() if all(one.is_file() for one in two)}
    return _places.named(folder, {}) | official


def rows(files: _places.Files) -> Found:
    """input: "emotion text: ..."; label: one of the four words.

    Raises:
        UserError: a field is missing, a label is none of the four, or a part has not as many labels as texts.
    """
    sources = list(_lines(*files)) if len(files) == 2 else of_any_length(files[0])
    found = []
    for index, source in enumerate(sources):
        text, given = value(source, "text", index).strip(), value(source, "label", index)
        if given not in LABELS:
            raise UserError(f"{place(source, index)}: label {given} is none of {', '.join(LABELS)}. Correct it.")
        made = {"input": f"emotion text: {text}", "target": LABELS[given], "text": text, "label": LABELS[given]}
        found.append(Row(made, files[0].name, line_of(source, index)))
    return Found(found)


def _lines(texts: Path, labels: Path) -> Iterator[Row]:
    """A text a line, and in the other file its label in the same line."""
    said, named = (text_of(path).rstrip().split("\n") for path in (texts, labels))
    if len(said) != len(named):
        raise UserError(
            f"{texts.name} has {len(said)} lines and {labels.name} {len(named)}, blank ends aside. Take both anew."
        )
    for number, (text, label) in enumerate(zip(said, named, strict=True), 1):
        if not text.strip() or not label.strip():
            empty = labels if text.strip() else texts
            raise UserError(f"{empty.name}, line {number}: it is empty. Take both files anew, or drop it in both.")
        yield Row({"text": text, "label": label.strip()}, texts.name, number)
