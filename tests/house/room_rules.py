"""The rules of the house, each a function of a package's folder: its faults, a line each, of which there are none."""

import ast
import graphlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scripts.imports import Import, imports, modules, room

HEAVY = ("torch", "transformers")
LIGHT_ROOMS = ("data", "report")


def against_the_table(package: Path, table: Mapping[str, Sequence[str]]) -> list[str]:
    """Rooms that no row has, and imports that the importer's row does not have."""
    rooms = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    faults = [f"the room {name} is not in the table" for name in sorted(rooms - table.keys())]
    for one in _ours(package):
        importer, target = room(one.importer), room(one.target)
        if importer in table and target in rooms and target != importer and target not in table[importer]:
            faults.append(f"{one}: {importer} may import {', '.join(table[importer]) or 'no other room'}")
    return faults


def named_in_strings(package: Path, table: Mapping[str, Sequence[str]]) -> list[str]:
    """Strings that name a module or a folder ("tunescope.data.row", "data.metrics") of a room that is out of reach."""
    known, faults = modules(package), []
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                module = next((one for one in (node.value, f"{package.name}.{node.value}") if one in known), "")
                if table.keys() >= {room(name), room(module)} and room(module) not in (room(name), *table[room(name)]):
                    faults.append(f"{name} names {node.value}")
    return faults


def circles(package: Path) -> list[str]:
    """A circle of files, if there is one; a function's imports and those of TYPE_CHECKING count."""
    edges: dict[str, set[str]] = {}
    for one in _ours(package):
        if one.target not in (one.importer, package.name):
            edges.setdefault(one.importer, set()).add(one.target)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as problem:
        return [" is imported by ".join(problem.args[1])]
    return []


def heavy(package: Path) -> list[str]:
    """How a file of the light rooms comes to torch or transformers, itself or through what it imports."""
    edges: dict[str, set[str]] = {}
    for one in imports(package):
        own = one.target.partition(".")[0] == package.name
        edges.setdefault(one.importer, set()).update(_with_parents(one.target) if own else [one.target.split(".")[0]])
        if one.target.startswith("safetensors.torch"):
            edges[one.importer].add("torch")
    starts = [name for name in modules(package) if room(name) in LIGHT_ROOMS]
    return [" -> ".join(way) for start in starts if (way := _way(start, edges)) is not None]


def _with_parents(module: str) -> list[str]:
    """To import a.b.c runs a.b and a first."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _way(start: str, edges: Mapping[str, set[str]]) -> list[str] | None:
    """The shortest way to a heavy package."""
    ways, seen = [[start]], {start}
    for way in ways:
        if way[-1] in HEAVY:
            return way
        new = sorted(edges.get(way[-1], set()) - seen)
        seen.update(new)
        ways += [[*way, one] for one in new]
    return None


def face_within(package: Path) -> list[str]:
    """Files within that import the package for its public names."""
    own = [one for one in imports(package) if one.target == package.name and room(one.importer)]
    return [f"{one}: name the file that has it" for one in own if one.name != "__version__"]


def code_in_faces(package: Path) -> list[str]:
    """`__init__.py` files that hold more than a docstring, imports from below them and `__all__`."""
    faults = []
    for name, path in modules(package).items():
        if path.name != "__init__.py" or name == package.name:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if not (_docstring(node) or _names_list(node) or _export(node, name)):
                faults.append(f"{name}/__init__.py:{node.lineno} has code: {ast.unparse(node)[:60]}")
    return faults


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names_list(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _export(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(name.partition(".")[0] + ".")


def not_plugins(package: Path, folders: Mapping[str, Sequence[str]]) -> list[str]:
    """Files of plugin folders that the finder misses, or that lack a name which all plugins of the folder have.

    folders: folder as the finder names it -> what a file there has, see `_has`.
    """
    faults = []
    for folder, wanted in folders.items():
        for path in sorted(package.joinpath(*folder.split(".")).glob("*.py")):
            if path.name.startswith("_"):
                continue
            if not re.fullmatch(r"[a-z][a-z0-9_]*\.py", path.name):
                faults.append(f"{folder}/{path.name} is not found: small letters, digits and _ alone")
            has = set(_has(ast.parse(path.read_text("utf-8"))))
            faults += [f"{folder}/{path.name} has no {one}: move it up a folder" for one in wanted if one not in has]
    return faults


def _has(tree: ast.Module) -> Iterator[str]:
    """The names that a file defines at its top, and "a class" where one of them is that of a public class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield "a class"
        elif isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            yield from (one.asname for one in node.names if one.asname)  # a family that is another's


def too_deep(package: Path) -> list[str]:
    """Files in a third level of folders."""
    paths = sorted(
        path.relative_to(package) for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return [f"{path}: two levels of folders are enough" for path in paths if len(path.parts) > 3]


def not_things(package: Path, endings: str, allowed: Sequence[str]) -> list[str]:
    """Files and folders whose name ends with a word for what is done or was done, which is not `allowed`."""
    faults = []
    for path in sorted([*package.rglob("*.py"), *(file.parent for file in package.rglob("__init__.py"))]):
        word = path.stem.rpartition("_")[2]
        if re.fullmatch(endings, word) and word not in allowed:
            faults.append(f"{path.relative_to(package)}: {word!r} is no thing; name what the file holds")
    return faults


def _ours(package: Path) -> list[Import]:
    return [one for one in imports(package) if one.target.partition(".")[0] == package.name]
