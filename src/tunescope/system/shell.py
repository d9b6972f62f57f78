"""What is printed to be typed: words and paths as a shell takes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

BYTES = range(0xDC80, 0xDD00)  # the surrogates that Python has for bytes of a name that is not UTF-8


def word(text: str) -> str:
    """The text in quotes, where it needs them; bytes that are not UTF-8 as bash and zsh write them, $'b\\344d'."""
    return _escaped(text) if any(ord(sign) in BYTES for sign in text) else shlex.quote(text)


def line(text: str) -> str:
    """The same on one line."""
    return _escaped(text) if "\n" in text else word(text)


def join(words: Iterable[str]) -> str:
    return " ".join(map(word, words))


def path(place: str | Path) -> str:
    return word(no_option(str(place)))


def no_option(name: str) -> str:
    """A file's name that is not taken for an option."""
    return f"./{name}" if name.startswith("-") else name


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "$'" + "".join(f"\\{ord(one) - 0xDC00:03o}" if ord(one) in BYTES else one for one in plain) + "'"
