"""MultiRC: is this an answer to the question on the paragraph (SuperGLUE's JSONL)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found, row
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, place
from tunescope.errors import UserError

SOURCE = f"Khashabi et al. 2018, aclanthology.org/N18-1023; in {_superglue.SOURCE}"
LABELS = {"0": "False", "1": "True"}
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """A row an answer. input: "multirc question: ... answer: ... paragraph: ..."; label: True or False.

    The order of the fields is that of T5's code (t5.data.glue_utils). The metric `f1_true` is the F1 over all answers
    that papers report; whether all answers of a question are right, their other number, is not counted here.

    Raises:
        UserError: a line has no passage with questions and answers, or an answer no label.
    """
    made = [one for index, source in enumerate(of_any_length(files[0])) for one in _answers(source, index)]
    named = files[0].name.startswith("val")
    return Found(made, (f"the rows of {files[0].name}: those of test.jsonl have no public labels",) if named else ())


def _answers(source: Mapping[str, Any], index: int) -> Iterator[Row]:
    passage = source.get("passage", source)
    try:
        for question in passage["questions"]:
            for answer in question["answers"]:
                yield _row(source, index, (question["question"], answer["text"], passage["text"]), answer.get("label"))
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{place(source, index)} needs 'passage' with 'text' and 'questions', each with 'question' and 'answers', "
            "and these with 'text', all of it words. Give SuperGLUE's own files."
        ) from error


def _row(source: Mapping[str, Any], index: int, fields: tuple[str, str, str], given: object) -> Row:
    if str(given) not in LABELS:
        raise UserError(
            f"{place(source, index)}: an answer has no label that is 0 or 1; those of SuperGLUE's test.jsonl are not "
            "public. Take val.jsonl."
        )
    asked, answer, paragraph = (one.strip() for one in fields)
    text, label = f"multirc question: {asked} answer: {answer} paragraph: {paragraph}", LABELS[str(given)]
    return row({"input": text, "target": label, "text": text, "label": label}, source)
