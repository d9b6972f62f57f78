"""WSC: does the pronoun mean the noun (SuperGLUE's JSONL)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tunescope.data.corpora import _places, _superglue
from tunescope.data.corpus_rows import Found, left_out
from tunescope.data.row import place, value
from tunescope.errors import UserError

SOURCE = f"Levesque et al. 2012, Winograd Schema Challenge; in {_superglue.SOURCE}"
LABELS = _superglue.TRUTH
splits = _superglue.splits


def rows(files: _places.Files) -> Found:
    """input: "wsc text: ... * noun * ... # pronoun # ..."; label: True or False.

    This is the form of T5's code (t5.data.preprocessors.wsc) that can use rows whose label is False. That of appendix D
    asks what the pronoun means: it is in `pronoun`, "wsc: ... *it* ...", beside `referent`, which is the answer only
    where the label is True. A span is found in any case of its letters; T5's code leaves it unmarked where they differ.
    One that stands beside its index is taken there, and counted; so is one with other blanks or a full stop too many.
    Some rows of the published files have a span that is nowhere in their text: they are left out, and counted.

    Raises:
        UserError: a row has no spans, or no row has a span that stands in its text.
    """
    moved: list[int] = []
    lost: list[str] = []

    def form(source: Mapping[str, Any], index: int) -> dict[str, str] | None:
        text, spans = value(source, "text", index), source.get("target", source)
        found = [_span(text, spans, which, place(source, index)) for which in ("span1", "span2")]
        noun, pronoun = found
        if noun is None or pronoun is None:
            lost.append(place(source, index))
            return None
        moved.extend(beside for _, _, beside in (noun, pronoun) if beside)
        referent = " ".join(spans["span1_text"].split())
        return {
            "input": "wsc text: " + _marked(text, (*noun[:2], "* "), (*pronoun[:2], "# ")),
            "pronoun": "wsc: " + _marked(text, (*pronoun[:2], "*")),
            "referent": referent,
        }

    found = _superglue.rows(files, form, LABELS)
    if lost and not found.rows:
        raise UserError(f"{lost[0]}: a span does not stand in the text, and so in no row. Give SuperGLUE's own files.")
    told = (f"{len(moved):,} spans stand beside their index and were found",) if moved else ()
    return replace(
        found, notes=(*found.notes, *told, *left_out(len(lost), "rows with a span that is not in their text"))
    )


def _span(text: str, spans: object, which: str, where: str) -> tuple[int, int, int] | None:
    """(start, end, words from its index) of a span that is given by its text and the index of its first word, or None.

    Blanks may be others than the span's, and its full stop may be missing: published rows have both.
    """
    span, index = (spans.get(f"{which}_{what}") if isinstance(spans, Mapping) else None for what in ("text", "index"))
    if not isinstance(span, str) or not isinstance(index, int) or not span:
        raise UserError(f"{where} has no {which}_text and {which}_index. Give the row as SuperGLUE publishes it.")
    starts = {word.start(): n for n, word in enumerate(re.finditer(r"\S+", text))}
    for given in (span, span.rstrip(" .")):
        pattern = re.compile(r"\s+".join(map(re.escape, given.split())), re.IGNORECASE)
        found = [match for start in starts if given.strip() and (match := pattern.match(text, start))]
        if found:
            nearest = min(found, key=lambda match: abs(starts[match.start()] - index))
            return nearest.start(), nearest.end(), abs(starts[nearest.start()] - index)
    return None


def _marked(text: str, *marks: tuple[int, int, str]) -> str:
    """The text with each span (start, end) between its mark and the mirrored mark; a span may lie in another."""
    ends = [(end, 0, -start, mark[::-1]) for start, end, mark in marks]
    for at, _, _, mark in sorted([*ends, *((start, 1, -end, mark) for start, end, mark in marks)], reverse=True):
        text = text[:at] + mark + text[at:]
    return text
