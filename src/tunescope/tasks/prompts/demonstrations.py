"""Demonstrations in their parts, so that what each token stands for is known and never guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunescope.tasks.prompts import mask, templates

PARTS = ("prefix", "text", "separator", "label", "end")
END = "\n\n"


@dataclass(frozen=True)
class Demonstration:
    """One solved row. The parts joined in this order are its text.

    prefix: what the template has before its first field. text: from the first field to the last. separator: from
    there to the label word, the space between them with it. label: the word. end: what parts it from what follows.
    What a template has behind its {mask}, fields too, is of the end.
    """

    name: str  # of the label
    prefix: str
    text: str
    separator: str
    label: str
    end: str = END

    def __str__(self) -> str:
        return "".join(getattr(self, part) for part in PARTS)


def solved(
    template: str, values: Mapping[str, str], name: str, word: str, end: str = END, space: str | None = None
) -> Demonstration:
    """The template filled with `values`, with the word of the label of that name at its {mask}, or else behind it."""
    parts = mask.halves(template)
    front, rest = parts if parts is not None else (template, "")
    pieces = templates.pieces(front)
    fields = [index for index, piece in enumerate(pieces) if piece[1] is not None]
    if not fields:
        return Demonstration(name, templates.fill(front, values), "", "", word, templates.fill(rest, values) + end)
    first, last = fields[0], fields[-1]
    text = "".join(
        (literal if index > first else "") + values[str(field)]
        for index, (literal, field, _, _) in enumerate(pieces)
        if first <= index <= last
    )
    own = templates.separator(front) if space is None else space
    separator = templates.tail(front) + (own if parts is None else "")
    return Demonstration(name, pieces[first][0], text, separator, word, templates.fill(rest, values) + end)


def joined(demonstrations: Sequence[Demonstration]) -> str:
    """The words in front of a query."""
    return "".join(map(str, demonstrations))
