"""MNLI: does the premise entail the hypothesis, contradict it, or neither (GLUE's TSV; or JSONL)."""

from __future__ import annotations

from pathlib import Path

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found, row
from tunescope.data.read import of_any_length
from tunescope.data.row import place, value
from tunescope.errors import UserError

SOURCE = "Williams et al. 2018, arXiv:1704.05426; in GLUE, Wang et al. 2018, gluebenchmark.com"
LABELS = ("entailment", "neutral", "contradiction")
OFFICIAL = {"train": ("train.tsv",), "test": ("dev_matched.tsv",), "test_mismatched": ("dev_mismatched.tsv",)}
FIELDS = {
    "premise": "sentence1",
    "hypothesis": "sentence2",
    "label": "gold_label",
}  # as JSONL copies and GLUE name them


def splits(folder: Path) -> dict[str, _places.Files]:
    """GLUE's dev_matched.tsv is the test part: the labels of its test parts are not public."""
    return _places.named(folder, OFFICIAL)


def rows(files: _places.Files) -> Found:
    """input: "mnli hypothesis: ... premise: ..."; premise and hypothesis; label: entailment, neutral or contradiction.

    Raises:
        UserError: a field is missing, or a label is none of the three.
    """
    found = []
    for index, source in enumerate(of_any_length(files[0])):
        names = {field: glue if glue in source else field for field, glue in FIELDS.items()}
        given = {field: value(source, name, index).strip() for field, name in names.items()}
        if given["label"] not in LABELS:
            raise UserError(
                f"{place(source, index)}: label {given['label']} is none of {', '.join(LABELS)}. Correct it."
            )
        text = f"mnli hypothesis: {given['hypothesis']} premise: {given['premise']}"
        found.append(row(given | {"input": text, "target": given["label"], "text": text}, source))
    return Found(found)
