"""What is printed to be typed: words and paths as a shell takes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

PLAIN = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
BYTES = range(0xDC80, 0xDD00)  # the surrogates that Python has for bytes of a name that is not UTF-8


def word(text: str) -> str:
    """The text on one line, in quotes where it needs them.

    What cannot be seen, and bytes that are not UTF-8, stand as bash and zsh write them: $'one\\ntwo', $'b\\344d'.
    """
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def join(words: Iterable[str]) -> str:
    return " ".join(map(word, words))


def path(place: str | Path) -> str:
    return word(no_option(str(place)))


def no_option(name: str) -> str:
    """A file's name that is not taken for an option."""
    return f"./{name}" if name.startswith("-") else name


def _escaped(sign: str) -> str:
    code = ord(sign)
    if code in BYTES:
        return f"\\{code - 0xDC00:03o}"
    if sign in PLAIN or sign.isprintable():
        return PLAIN.get(sign, sign)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
