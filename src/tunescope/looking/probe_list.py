"""The probes with a line each, read from their files without importing them: `tunescope probe --help` stays quick."""

import ast
import difflib
from pathlib import Path

from tunescope import probes
from tunescope.errors import UserError


def lines() -> list[str]:
    """NAME: what it tells, for every probe."""
    return [f"{path.stem}: {_first_line(path)}" for path in _files()]


def check(name: str) -> str:
    """The name, if it is a probe's.

    Raises UserError, with the nearest name, where it is not.
    """
    names = [path.stem for path in _files()]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        raise UserError(
            f"There is no probe {name!r}."
            + (f" Did you mean {near[0]!r}?" if near else "")
            + f" Probes: {', '.join(names)}."
        )
    return name


def _files() -> list[Path]:
    found = [path for folder in probes.__path__ for path in Path(folder).glob("[a-z]*.py")]
    return sorted(found, key=lambda path: path.stem)


def _first_line(path: Path) -> str:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return told.partition("\n")[0]
