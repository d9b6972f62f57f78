"""The files of a corpus's folder by the names that its authors gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tunescope.errors import UserError

Files = tuple[Path, ...]
STORED = {"train": ("train.jsonl",), "dev": ("validation.jsonl", "dev.jsonl", "val.jsonl"), "test": ("test.jsonl",)}


def named(
    folder: Path, official: Mapping[str, Sequence[str]], copies: Mapping[str, Sequence[str]] = STORED
) -> dict[str, Files]:
    """Part -> its one file: an official name, or that of a JSONL copy (train, validation, test), each also with .gz.

    Other JSONL files of the folder are parts by their own names, such as test_2017_flickr.

    Raises:
        UserError: two files could be the same part.
    """
    parts = [*copies, *(part for part in official if part not in copies)]
    wanted = {part: (*official.get(part, ()), *copies.get(part, ())) for part in parts}
    found: dict[str, Files] = {}
    for part, names in wanted.items():
        there = [path for name in names for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        if there:
            found[part] = (one(there, part),)
    taken = {path for files in found.values() for path in files}
    for path in sorted({*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")} - taken):
        found.setdefault(path.name.partition(".jsonl")[0], (path,))
    return found


def one(paths: Sequence[Path], part: str) -> Path:
    """The path, if there is one only. Raises UserError where several could be the part."""
    if len(paths) > 1:
        raise UserError(
            f"{paths[0].parent} has {' and '.join(path.name for path in paths)}, and each could be {part}. "
            "Take one away, or give the file itself: NAME:FILE."
        )
    return paths[0]


def renamed(found: Mapping[str, Files], names: Mapping[str, Sequence[str]]) -> dict[str, Files]:
    """The parts, with the one that a pattern of `names` fits as that part; where several fit, each keeps its name."""
    parts = dict(found)
    for part, patterns in names.items():
        fits = [name for name in found if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if part not in parts and len(fits) == 1:
            parts[part] = parts.pop(fits[0])
    first = [part for part in STORED if part in parts]
    return {part: parts[part] for part in (*first, *(part for part in parts if part not in first))}
