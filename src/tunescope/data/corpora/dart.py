"""DART: table triples to text (dart-v1.1.1-full-*.json or .xml; or JSONL with triples and references)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tunescope.data.corpora import _places, _stored
from tunescope.data.corpora._listed import entries
from tunescope.data.corpora._triples import Entry, xml_entries
from tunescope.data.corpora._triples import rows as rows_of
from tunescope.data.corpus_rows import Found, short
from tunescope.errors import UserError

SOURCE = "Nan et al. 2021, arXiv:2007.02871; github.com/Yale-LILY/dart, data/v1.1.1; MIT"
METRICS = ("bleu", "meteor", "ter")


def splits(folder: Path) -> dict[str, _places.Files]:
    """dart-VERSION-full-train.json and so on; where there is no JSON of a part, its XML."""
    found = _places.named(folder, {})
    for part in ("train", "dev", "test"):
        for ending in ("json", "xml"):
            there = sorted(folder.glob(f"dart-*-full-{part}.{ending}"))
            if there and part not in found:
                found[part] = (_places.one(there, part),)
    return found


def rows(files: _places.Files) -> Found:
    """input: "subject : relation : object | ...", relations in lower case, as Li & Liang's code writes DART alone.

    White space around a text goes; entries with no text and empty texts are left out and counted.
    """
    return rows_of(_entries(files[0]), lower_relations=True)


def _entries(path: Path) -> Iterator[Entry]:
    name = path.name.removesuffix(".gz")
    if name.endswith(".xml"):
        return (replace(entry, more={}) for entry in xml_entries(path))  # its category says nothing: MISC
    return _published(path) if name.endswith(".json") else _stored.triples(path)


def _published(path: Path) -> Iterator[Entry]:
    for line, entry in entries(path):
        said, notes = entry.get("tripleset"), entry.get("annotations")
        texts = (
            [note.get("text") if isinstance(note, dict) else None for note in notes]
            if isinstance(notes, list)
            else None
        )
        if not _stored.is_triples(said) or not _stored.is_texts(texts):
            raise UserError(
                f"{path} line {line}: the entry needs 'tripleset', a list of [subject, relation, object], and "
                "'annotations', a list of {\"text\": ...}. Give JSON as DART publishes it."
            )
        yield Entry(tuple(map(tuple, said)), tuple(texts), (short(path), line))  # type: ignore[arg-type]
