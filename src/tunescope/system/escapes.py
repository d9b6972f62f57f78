"""Typed texts of several pieces: a backslash makes the sign behind it a part of a piece."""

from __future__ import annotations

import re


def cut(text: str, at: str, signs: str) -> list[str]:
    """The pieces of a text between what matches `at`, but for what is escaped, as typed."""
    pieces, start = [], 0
    for found in re.finditer(rf"{_escaped(signs)}|(?P<at>{at})", text):
        if found["at"] is not None:
            pieces.append(text[start : found.start()])
            start = found.end()
    return [*pieces, text[start:]]


def plain(piece: str, signs: str) -> str:
    """What a piece says. A backslash before any other sign is itself."""
    return re.sub(_escaped(signs), r"\1", piece)


def written(text: str, signs: str) -> str:
    """The piece that says the text."""
    return re.sub(rf"([\\{re.escape(signs)}])", r"\\\1", text)


def _escaped(signs: str) -> str:
    return rf"\\([\\{re.escape(signs)}])"
