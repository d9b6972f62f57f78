"""The one finder of plugin folders: a file there without an underscore is a plugin, and its name is what is typed.

A folder is named as its modules are, below the package: "data.metrics". What is listed is read without importing it, so
that `--help` stays quick; a plugin is imported when it is found.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from tunescope.errors import UserError

PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).resolve().parents[1]
Kind = TypeVar("Kind")


def names(folder: str) -> list[str]:
    """The names of the folder's plugins, sorted."""
    return [path.stem for path in files(folder)]


def lines(folder: str) -> list[str]:
    """NAME: the first line of its docstring, for every plugin."""
    return [f"{path.stem}: {_first_line(path)}" for path in files(folder)]


def files(folder: str) -> list[Path]:
    """The plugins' files, sorted by name; of a package that is imported, in all the places that it has."""
    package = sys.modules.get(f"{PACKAGE}.{folder}")
    places = map(Path, package.__path__) if package else [ROOT.joinpath(*folder.split("."))]
    return sorted((path for place in places for path in place.glob("[a-z]*.py")), key=lambda path: path.stem)


def find(folder: str, name: str, what: str) -> ModuleType:
    """The plugin's module; `what` it is called in the message.

    Raises:
        UserError: there is none of that name; with the nearest.
    """
    return load(folder, checked_name(folder, name, what))


def load(folder: str, name: str) -> ModuleType:
    """The module of a plugin that is there."""
    return importlib.import_module(f"{PACKAGE}.{folder}.{name}")


def checked_name(folder: str, name: str, what: str) -> str:
    """The name, if there is a plugin of it; else UserError, as `find`."""
    return among(names(folder), name, what)


def among(there: Sequence[str], name: str, what: str) -> str:
    """The name, if it is among those that are there; else UserError, as `find`."""
    if name not in there:
        raise UserError(f"There is no {what} {name!r}.{_near(name, there)} {what.capitalize()}s: {', '.join(there)}.")
    return name


def only_class(module: ModuleType, kind: type[Kind]) -> type[Kind]:
    """The one public class of that kind which a plugin's file defines; a file with none or several is a fault."""
    own = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]
    if len(own) != 1:
        raise RuntimeError(f"{module.__name__} has {len(own)} public classes of kind {kind.__name__}; a file is one.")
    return own[0]


def one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    """UserError for a value that an option does not take, with the nearest of those it does."""
    if value not in allowed:
        raise UserError(
            f"--{option} '{value}' is not known.{_near(value, allowed)} It is one of: {', '.join(allowed)}."
        )


def _near(name: str, there: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, there, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _first_line(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    end = text.find('"""', 3) + 3 if text.startswith('"""') else len(text)  # no more is read: --help is quick
    told = ast.get_docstring(ast.parse(text[:end])) or ""
    return told.partition("\n")[0]
