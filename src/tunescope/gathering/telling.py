"""`tunescope data`: the corpora, or what is in one, and its rows as JSONL."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope import files, folder
from tunescope.errors import UserError
from tunescope.gathering.parts import corpus


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
        yield f"{part}: {len(rows):,} rows, {inputs:,} inputs; fields {', '.join(dict.fromkeys(n for r in rows for n in r))}"
    yield from (f"note: {note}" for note in found.notes)
    if out is not None:
        for path, rows in _places(found, Path(out)).items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            with files.disk_errors_named(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                files.put(path, text.encode())
            yield f"written: {path}"


def _listed() -> Iterator[str]:
    package = importlib.import_module("tunescope.corpora")
    for name, line in zip(folder.names(package), folder.lines(package), strict=True):
        yield line
        yield f"    {importlib.import_module(f'tunescope.corpora.{name}').SOURCE}"
    yield ""
    yield "A data path may be NAME:FOLDER (its train, dev and test), NAME:FOLDER#PART or NAME:FILE."


def _places(found: Mapping[str, Sequence[Mapping[str, Any]]], out: Path) -> dict[Path, Sequence[Mapping[str, Any]]]:
    if out.suffix == ".jsonl" and len(found) > 1:
        raise UserError(f"--out {out} is one file, and there are {', '.join(found)}. Name a part, #PART, or a folder.")
    places = (
        {out: rows for rows in found.values()}
        if out.suffix == ".jsonl"
        else {out / f"{part}.jsonl": rows for part, rows in found.items()}
    )
    taken = next((path for path in places if path.exists()), None)
    if taken is not None:
        raise UserError(f"--out: {taken} is already there, and is kept. Give another place, or take it away.")
    return places
