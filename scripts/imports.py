"""Who imports whom in a package, read from its files without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "tunescope"


@dataclass(frozen=True)
class Import:
    """One name that a file imports, wherever in the file: at its top, in a function, under TYPE_CHECKING.

    importer, target: modules in full; a target of another package is as it is written.
    name: what is taken out of the target, or "" where that is a module.
    """

    importer: str
    target: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}" + (f".{self.name}" if self.name else "")


def modules(package: Path) -> dict[str, Path]:
    """Module -> its file, for every file of the package; a folder's name is its `__init__.py`."""
    return {_name(path, package): path for path in sorted(package.rglob("*.py"))}


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def imports(package: Path) -> list[Import]:
    """Every import of every file; relative ones are not used here and not read."""
    known = modules(package)
    return [found for name, path in known.items() for found in _of_file(name, path, known)]


def _of_file(name: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield Import(name, one.name, "", node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                target, taken = (whole, "") if whole in known else (node.module, one.name)
                yield Import(name, target, taken, node.lineno)


def room(module: str) -> str:
    """tunescope.data.row -> data; "" for the package itself, and for a file beside the rooms its name."""
    return module.split(".")[1] if "." in module else ""


def between_rooms(package: Path) -> dict[str, set[str]]:
    """Room -> the rooms that its files import; errors.py and the like, which are beside the rooms, are left out."""
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    found: dict[str, set[str]] = {name: set() for name in sorted(rooms)}
    for one in imports(package):
        importer, target = room(one.importer), room(one.target)
        if one.target.partition(".")[0] == package.name and {importer, target} <= rooms and importer != target:
            found[importer].add(target)
    return found
