"""The rows of a corpus, part by part; of WebNLG also those of seen and unseen domains."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.data.corpus_name import FOLDER, Spec, names, parsed, shown
from tunescope.data.corpus_rows import Found
from tunescope.data.row import Row, check_characters
from tunescope.data.rows_of_file import file_sha256
from tunescope.errors import Note, UserError
from tunescope.system import plugins

PARTS = ("train", "dev", "test")
DOMAINS = {"seen": True, "unseen": False}


class Rows(list[dict[str, Any]]):
    """Rows of one part, with notes: what was left out, and how many."""

    __slots__ = ("notes",)

    def __init__(self, rows: Iterable[Any], notes: tuple[str, ...]) -> None:
        super().__init__(rows)
        self.notes = notes


class Corpus(dict[str, Rows]):
    """Part -> its rows: train, dev, test, and others that the folder has."""

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for rows in self.values() for note in rows.notes)


def corpus(text: str | Path) -> Corpus:
    """The parts of NAME:FOLDER, each with its rows; of NAME:FOLDER#PART and NAME:FILE the one part alone.

    Each row is a ``Row``: it has `input` and `target`, and what else its corpus has, and knows its file and line. Rows
    with equal inputs are several references of one. ``corpus(...).notes`` says what was left out.

    Raises:
        UserError: no such corpus, folder, part or file; or a file that cannot be used, with its line.
    """
    spec = parsed(text)
    if spec is None:
        raise UserError(f"{text} names no corpus. Type NAME:PATH, such as e2e:FOLDER. Corpora: {', '.join(names())}.")
    if spec.part or not os.path.isdir(spec.path):
        return Corpus({spec.part or spec.path.name.partition(".")[0]: read(spec)})
    return Corpus({part: read(replace(spec, part=part)) for part in splits(spec)})


def splits(spec: Spec) -> dict[str, tuple[Path, ...]]:
    """Part -> its files, of a spec's folder. Raises UserError where there are none."""
    if not os.path.isdir(spec.path):
        raise UserError(f"{spec}: there is no folder or file {spec.path}. Check the path.")
    found: dict[str, tuple[Path, ...]] = _module(spec).splits(spec.path)
    if not found:
        has = sorted(path.name for path in spec.path.iterdir())[:8]
        raise UserError(
            f"{spec.path} has no files that {spec.name} knows. It holds: {', '.join(has) or 'nothing'}. "
            f"See: tunescope data; a single file is {spec.name}:FILE."
        )
    return found


def read(spec: Spec) -> Rows:
    """The rows of one part, or of one file.

    Raises:
        UserError: as `corpus`; and for a folder without a part, since it is several.
    """
    own = _own(spec)
    base, domain = _base(spec, own)
    module = _module(spec)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Parquet: ", Note)  # a corpus has words of its own for labels
        found: Found = module.rows(own.get(base, (spec.path,)))
    if hasattr(module, "DOMAIN") and "train" in own:
        known = found if base == "train" else module.rows(own["train"])
        if all(module.DOMAIN in row for row in (*found.rows, *known.rows)):  # a copy may lack it
            found = replace(found, rows=_with_seen(found.rows, known.rows, module.DOMAIN))
    if domain:
        found = _only(spec, found, domain)
    if not found.rows:
        raise UserError(f"{spec} has no rows. Give a part with at least one.")
    for row in found.rows:
        check_characters(row, f"{row.file} line {row.line}")
    return Rows(found.rows, tuple(f"{shown(str(spec))}: {note}." for note in found.notes))


def digest(spec: Spec) -> str:
    """The SHA-256 of the file read; of several, that of the lines "SHA-256  NAME" in the order of reading.

    Where a part's rows are told seen from unseen, the folder's training files are among them.
    """
    own = _own(spec)
    base, _ = _base(spec, own)
    needs = hasattr(_module(spec), "DOMAIN") and base != "train"
    files = (*own.get(base, (spec.path,)), *(own.get("train", ()) if needs else ()))
    hashes = [file_sha256(path) for path in files]
    lines = "".join(f"{one}  {path.name}\n" for one, path in zip(hashes, files, strict=True))
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(lines.encode()).hexdigest()


def expanded(given: Mapping[str, str | Path]) -> dict[str, str]:
    """Absolute paths and specs, one part each: a whole folder as train brings its own dev and test, unless given."""
    found = {part: _absolute(text, part) for part, text in given.items()}
    train = parsed(given["train"])
    if train is not None and not train.part and os.path.isdir(train.path):
        own = {
            part: str(replace(train, path=train.path.absolute(), part=part)) for part in PARTS if part in splits(train)
        }
        found = own | found
    return {part: found[part] for part in PARTS if part in found}


def _absolute(text: str | Path, part: str) -> str:
    spec = parsed(text)
    if spec is None:
        return str(Path(text).absolute())
    if os.path.isdir(spec.path):
        spec = replace(spec, part=spec.part or part)
        _base(spec, splits(spec))
    return str(replace(spec, path=spec.path.absolute()))


def _own(spec: Spec) -> dict[str, tuple[Path, ...]]:
    return {} if os.path.isfile(spec.path) else splits(spec)


def _module(spec: Spec) -> Any:
    return plugins.load(FOLDER, spec.name)


def _base(spec: Spec, own: Mapping[str, tuple[Path, ...]]) -> tuple[str, str]:
    """(the part that has the files, seen or unseen or "")."""
    base, _, domain = spec.part.rpartition("_")
    is_domain = domain in DOMAINS and spec.part not in own
    if is_domain and not hasattr(_module(spec), "DOMAIN"):
        raise UserError(f"{spec}: {spec.name} has no domains, so it has no seen and unseen parts. Parts: {_list(own)}.")
    if not is_domain:
        base, domain = spec.part, ""
    if own and not base:
        raise UserError(f"{spec} is several parts: {_list(own)}. Name one: {spec.name}:FOLDER#{next(iter(own))}")
    if own and base not in own:
        raise UserError(
            f"{spec}: {spec.path} has no part {base!r}. Parts: {_list(own)}. Type {spec.name}:FOLDER#{next(iter(own))}"
        )
    if not own and base:
        raise UserError(f"{spec}: a file has no parts but seen and unseen. Leave '#{spec.part}' out.")
    return base, domain


def _with_seen(rows: list[Row], training: list[Row], field: str) -> list[Row]:
    """The rows with `seen`: whether the training rows have the row's domain."""
    known = {row[field] for row in training}
    return [Row({**row, "seen": row[field] in known}, row.file, row.line) for row in rows]


def _only(spec: Spec, found: Found, domain: str) -> Found:
    if not all("seen" in row for row in found.rows):
        raise UserError(
            f"{spec}: what is unseen is known by the training rows, and none are beside it. Give the folder with its "
            f"train part: {spec.name}:FOLDER#test_{domain}"
        )
    kept = [row for row in found.rows if row["seen"] is DOMAINS[domain]]
    return Found(kept, (*found.notes, f"{len(kept):,} of {len(found.rows):,} rows are of {domain} domains"))


def _list(own: Mapping[str, Any]) -> str:
    return ", ".join(own) or "none"
