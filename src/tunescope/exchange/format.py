"""Formats by name: a file in `formats/` writes the files of another library, reads them, or both.

A form has ABOUT and SERVES, a line each as literal strings, and at least one of ``write(given, folder) -> notes`` and
``read(folder, model, tokenizer) -> Incoming``; with ``write`` it may have ``check(given, folder) -> difference``, and
``rounding(given)``, a difference that no precision of the model undoes. What they are handed and give back is in
`tunescope.exchange.outgoing`.
"""

import ast
from functools import cache
from typing import Any

from tunescope.errors import UserError
from tunescope.system import plugins

FOLDER = "exchange.formats"


def format_names() -> list[str]:
    """The forms: the files of their folder."""
    return plugins.names(FOLDER)


def find_format(name: str, does: str) -> Any:
    """The module of that form, with the function that is asked of it.

    does: "write" or "read".

    Raises:
        UserError: there is no such form, or it does the other alone.
    """
    form = plugins.find(FOLDER, name, "format")
    if not hasattr(form, does):
        able = [other for other in format_names() if does in format_outline(other)]
        word = "written" if does == "write" else "read"
        raise UserError(f"Format {name!r} is not {word} here. These are: {', '.join(able) or 'none'}.")
    return form


def format_lines(does: str) -> list[str]:
    """NAME: its ABOUT, for every form that does it; nothing is imported."""
    return [f"{name}: {format_outline(name)['ABOUT']}" for name in format_names() if does in format_outline(name)]


@cache
def format_outline(name: str) -> dict[str, str]:
    """The literal strings of a form's file by name, and its public functions as "", read without importing it."""
    place = next(path for path in plugins.files(FOLDER) if path.stem == name)
    found: dict[str, str] = {}
    for node in ast.parse(place.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[node.targets[0].id] = value.value
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = ""
    return found
