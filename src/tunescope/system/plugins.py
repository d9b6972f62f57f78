"""Files of a folder as choices, with a line each, read without importing them: `--help` stays quick."""

import ast
import difflib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tunescope.errors import UserError


def names(package: ModuleType) -> list[str]:
    """The names of the package's files, sorted."""
    return sorted(path.stem for path in _files(package))


def lines(package: ModuleType) -> list[str]:
    """NAME: the first line of its docstring, for every file."""
    return [f"{path.stem}: {_first_line(path)}" for path in sorted(_files(package), key=lambda path: path.stem)]


def check(package: ModuleType, name: str, what: str) -> str:
    """The name, if there is a file of it; `what` it is called in the message.

    Raises UserError, with the nearest name, where there is none.
    """
    known = names(package)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"There is no {what} {name!r}.{hint} {what.capitalize()}s: {', '.join(known)}.")
    return name


def _files(package: ModuleType) -> list[Path]:
    return [path for folder in package.__path__ for path in Path(folder).glob("[a-z]*.py")]


def _first_line(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return told.partition("\n")[0]


def one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        close = difflib.get_close_matches(value, allowed, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise UserError(f"--{option} '{value}' is not known.{hint} It is one of: {', '.join(allowed)}.")
