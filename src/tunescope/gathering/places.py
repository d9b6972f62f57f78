"""The files of a corpus's folder by the names that its authors gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tunescope.errors import UserError

Files = tuple[Path, ...]
STORED = {"train": ("train.jsonl",), "dev": ("validation.jsonl", "dev.jsonl", "val.jsonl"), "test": ("test.jsonl",)}


def named(folder: Path, official: Mapping[str, Sequence[str]]) -> dict[str, Files]:
    """Part -> its one file: an official name, or that of a JSONL copy (train, validation, test), each also with .gz.

    Other JSONL files of the folder are parts by their own names, such as test_2017_flickr.

    Raises:
        UserError: two files could be the same part.
    """
    wanted = {part: (*official.get(part, ()), *STORED.get(part, ())) for part in {**official, **STORED}}
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
