"""SNLI: does the premise entail the hypothesis, contradict it, or neither (the authors' JSONL; or copies)."""

from __future__ import annotations

from pathlib import Path

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found, left_out, row
from tunescope.data.read import of_any_length
from tunescope.data.row import place, value
from tunescope.errors import UserError

SOURCE = "Bowman et al. 2015, arXiv:1508.05326; nlp.stanford.edu/projects/snli; terms: there"
LABELS = ("entailment", "neutral", "contradiction")
OPEN = "-"  # no three of five annotators agreed
OFFICIAL = {part: (f"snli_1.0_{part}.jsonl",) for part in ("train", "dev", "test")}
FIELDS = {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"}  # in copies, by the authors


def splits(folder: Path) -> dict[str, _places.Files]:
    """The authors' train, dev and test, all with labels; JSONL copies by their own names."""
    return _places.named(folder, OFFICIAL)


def rows(files: _places.Files) -> Found:
    """input: "snli hypothesis: ... premise: ..."; premise and hypothesis; label: entailment, neutral or contradiction.

    Rows on whose label the annotators did not agree ("-") are left out and counted, as the authors did.

    Raises:
        UserError: a field is missing, or a label is none of the three.
    """
    found, without = [], 0
    for index, source in enumerate(of_any_length(files[0])):
        names = {field: authors if authors in source else field for field, authors in FIELDS.items()}
        given = {field: value(source, name, index).strip() for field, name in names.items()}
        if given["label"] == OPEN:
            without += 1
            continue
        if given["label"] not in LABELS:
            raise UserError(
                f"{place(source, index)}: label {given['label']} is none of {', '.join(LABELS)}. Correct it."
            )
        text = f"snli hypothesis: {given['hypothesis']} premise: {given['premise']}"
        found.append(row(given | {"input": text, "target": given["label"], "text": text}, source))
    return Found(found, left_out(without, "rows on whose label the annotators did not agree"))
