"""`tunescope data`: the corpora, or what is in one, and its rows as JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tunescope.data.corpus import corpus
from tunescope.data.corpus_name import FOLDER, names
from tunescope.errors import UserError
from tunescope.system import files, plugins


def lines(text: str, out: str | None) -> Iterator[str]:
    """The corpora with their sources; or the parts of the one named, what was left out, and what was written.

    Raises:
        UserError: the corpus cannot be read; or there is something already where its rows would go.
    """
    if not text and out is not None:
        raise UserError("--out is for the rows of a corpus: tunescope data NAME:FOLDER --out DIR")
    if not text:
        yield from _listed()
        return
    found = corpus(text)
    for part, rows in found.items():
        inputs = len({row["input"] for row in rows})
        names = ", ".join(dict.fromkeys(name for row in rows for name in row))
        yield f"{part}: {len(rows):,} rows, {inputs:,} inputs; fields {names}"
    yield from (f"note: {note}" for note in found.notes)
    if out is not None:
        for path, part in _places(list(found), Path(out)).items():
            _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found[part]))
            yield f"written: {path}"


def _listed() -> Iterator[str]:
    for name, line in zip(names(), plugins.lines(FOLDER), strict=True):
        yield line
        yield f"    {plugins.load(FOLDER, name).SOURCE}"
    yield ""
    yield "A data path may be NAME:FOLDER (its train, dev and test), NAME:FOLDER#PART or NAME:FILE."


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.put(path, text.encode())
    except OSError as error:
        raise UserError(f"--out: cannot write {path}: {error.strerror or error}. Give another place.") from error


def _places(parts: Sequence[str], out: Path) -> dict[Path, str]:
    """Where each part goes: the file itself, or PART.jsonl in the folder. UserError for what is there already."""
    if out.suffix == ".jsonl" and len(parts) > 1:
        raise UserError(f"--out {out} is one file, and there are {', '.join(parts)}. Name a part, #PART, or a folder.")
    places = {out if out.suffix == ".jsonl" else out / f"{part}.jsonl": part for part in parts}
    taken = next((path for path in places if path.exists()), None)
    if taken is not None:
        raise UserError(f"--out: {taken} is already there, and is kept. Give another place, or take it away.")
    return places
