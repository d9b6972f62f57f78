"""The entries of a JSON file that is one list, each with its line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from tunescope.data.rows_of_file import text_of
from tunescope.errors import UserError


def entries(path: Path, key: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each entry of the list that the file is, or that stands in it as ``{key: [...]}``.

    Raises:
        UserError: the file is not JSON of that form; the message names the line.
    """
    text = text_of(path)
    front = WHITESPACE.match(text, 0).end()
    if key is not None and text.startswith("{", front):
        front = WHITESPACE.match(text, front + 1).end()
        name = json.dumps(key)
        colon = WHITESPACE.match(text, front + len(name)).end()
        if not text.startswith(name, front) or not text.startswith(":", colon):
            raise UserError(f"{path} must begin with {{{name}: [. Give the file as its authors publish it.")
        front = WHITESPACE.match(text, colon + 1).end()
    if not text.startswith("[", front):
        raise UserError(f"{path} is not one JSON list of entries. Give the file as its authors publish it.")
    yield from _items(text, front + 1, path)


def _items(text: str, at: int, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    decoder, line, counted, closed = json.JSONDecoder(), 1, 0, False
    at = WHITESPACE.match(text, at).end()
    closed = text.startswith("]", at)
    while not closed:
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            where = getattr(error, "lineno", line)
            reason = getattr(error, "msg", "nested too deeply")
            raise UserError(f"{path} line {where} is not JSON: {reason}. Take the file anew.") from error
        if not isinstance(value, dict):
            raise UserError(f"{path} line {line} is a {type(value).__name__}, where an entry, an object, is needed.")
        yield line, value
        at = WHITESPACE.match(text, at).end()
        closed = text.startswith("]", at)
        if not closed and not text.startswith(",", at):
            raise UserError(f"{path} line {text.count(chr(10), 0, at) + 1}: a comma or the list's end is missing.")
        at = WHITESPACE.match(text, at + 1).end()
