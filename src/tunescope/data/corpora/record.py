"""ReCoRD: which entity of the passage does the gap in the query stand for (SuperGLUE's JSONL)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found, row
from tunescope.data.read import of_any_length
from tunescope.data.row import Row, place
from tunescope.errors import UserError

SOURCE = f"Zhang et al. 2018, arXiv:1810.12885; in {_superglue.SOURCE}"
METRICS = ("squad_f1", "squad_em")
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "record query: ... entities: ... passage: ..."; target: an answer, a row each, all of them references.

    The form is that of T5's code (t5.data.preprocessors.record): entities once each in the order of the alphabet, the
    highlights of the passage as sentences of it.

    Raises:
        UserError: a line has no passage with entities and questions, or a question no answers.
    """
    made = [one for index, source in enumerate(of_any_length(files[0])) for one in _queries(source, index)]
    named = files[0].name.startswith("val")
    return Found(made, (f"the rows of {files[0].name}: those of test.jsonl have no public answers",) if named else ())


def _queries(source: Mapping[str, Any], index: int) -> Iterator[Row]:
    try:
        passage = source["passage"]
        text, spans = passage["text"], passage["entities"]
        entities = ", ".join(sorted({text[one["start"] : one["end"] + 1] for one in spans}))
        asked = [(one["query"], sorted({answer["text"] for answer in one.get("answers", ())})) for one in source["qas"]]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{place(source, index)} needs 'passage' with 'text' and 'entities', and 'qas', each with 'query'. "
            "Give SuperGLUE's own files."
        ) from error
    for query, answers in asked:
        if not answers:
            raise UserError(
                f"{place(source, index)}: a query has no answers; those of SuperGLUE's test.jsonl are not public. "
                "Take val.jsonl."
            )
        made = f"record query: {query} entities: {entities} passage: {_sentences(text)}"
        for answer in answers:
            yield row({"input": made, "target": answer}, source)


def _sentences(text: str) -> str:
    """The passage with its highlights behind it, each a sentence."""
    return re.sub(r"\n@highlight\n", ". ", re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", text))
