"""The one way to a terminal: whatever is in a line, it moves no cursor, and it ends."""

import sys
import unicodedata
from typing import TextIO

LIMIT = 2000  # characters of a line
JOINERS = "\u200c\u200d"  # of Persian, Hindi and emoji
KEPT = "\t" + JOINERS


def say(text: str, file: TextIO | None = None, *, whole: bool = False) -> None:
    """Print the text as `shown` has it, to standard output, where characters it cannot write are written out.

    whole: no line is cut, as of a table that goes to a file.
    """
    stream = file or sys.stdout
    line = "\n".join(visible(one, KEPT) for one in text.split("\n")) if whole else shown(text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def shown(text: str) -> str:
    """The text line by line, with what would steer a terminal written out, and each line cut to LIMIT characters."""
    return "\n".join(map(_line, text.split("\n")))


def visible(text: str, kept: str = "") -> str:
    """The same in one line, with what would move a terminal's cursor, or nobody sees, written out (\\x1b, \\u202e).

    Characters of `kept` stay as they are.
    """
    if text.isprintable():  # then nothing of these kinds is in it, which most texts are, and long ones
        return text
    return "".join(one if one in kept else _visible(one) for one in text)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}:
        return character
    if character in "\n\t":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _line(text: str) -> str:
    """What is long is cut where it is long on the screen: a character that is written out is several there."""
    some = visible(text[: LIMIT + 1], KEPT)
    return some if len(some) <= LIMIT else f"{some[: LIMIT - 40]}… ({len(text):,} characters in all)"
