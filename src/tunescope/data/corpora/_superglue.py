"""SuperGLUE tasks as text, as T5 reads them: the task's name, then its fields by name in the order of the alphabet.

Raffel et al. 2020, arXiv:1910.10683, appendix D, in the order of their code (t5.data.preprocessors.glue), which Lester
et al. 2021 use; the appendix prints RTE with GLUE's names of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tunescope.data.corpora import _places
from tunescope.data.corpus_rows import Found, row
from tunescope.data.read import of_any_length
from tunescope.data.row import place, value
from tunescope.errors import UserError

Form = Callable[[Mapping[str, Any], int], dict[str, str] | None]
SOURCE = "Wang et al. 2019, arXiv:1905.00537; super.gluebenchmark.com; terms: there"
TRUTH = {"true": "True", "false": "False"}


def splits(folder: Path) -> dict[str, _places.Files]:
    """train; dev: dev32 of FewGLUE, else none, to be cut from train; test: val.jsonl, whose scores papers report.

    The labels of SuperGLUE's own test.jsonl are not public, so it is no part.
    """
    found = _places.named(folder, {"test": ("val.jsonl", "validation.jsonl")}, {"train": ("train.jsonl",)})
    labelled = {part: files for part, files in found.items() if not files[0].name.startswith("test.")}
    return _places.renamed(labelled, {"train": ("train32",), "dev": ("dev32",)})


def rows(files: _places.Files, form: Form, labels: Mapping[str, str]) -> Found:
    """Rows with input and target for generation, and the same as text and label for classification.

    form: a row and its index -> its input, and further fields if it has any; None leaves it out.

    Raises:
        UserError: a field is missing, or a label is none of SuperGLUE's.
    """
    found = []
    for index, source in enumerate(of_any_length(files[0])):
        made, label = form(source, index), _label(source, index, labels)
        if made is None:
            continue
        found.append(row({**made, "target": label, "text": made["input"], "label": label}, source))
    named = files[0].name.startswith("val")
    return Found(found, (f"the rows of {files[0].name}: those of test.jsonl have no public labels",) if named else ())


def fields(name: str, *keys: str) -> Form:
    """ "boolq passage: ... question: ..." of a row, and its fields by themselves, for a template that names them."""

    def form(row: Mapping[str, Any], index: int) -> dict[str, str]:
        given = {key: value(row, key, index).strip() for key in keys}
        return {"input": " ".join([name, *(f"{key}: {text}" for key, text in given.items())])} | given

    return form


def _label(source: Mapping[str, Any], index: int, labels: Mapping[str, str]) -> str:
    if "label" not in source:
        raise UserError(
            f"{place(source, index)} has no label; those of SuperGLUE's test.jsonl are not public. Take val.jsonl."
        )
    given = value(source, "label", index)
    if given not in labels:
        raise UserError(f"{place(source, index)}: label {given} is none of {', '.join(labels)}. Correct it.")
    return labels[given]
