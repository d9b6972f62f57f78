"""WebNLG: RDF triples to text (XML releases, the challenge's JSON; or JSONL with triples and references)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tunescope.data.corpora import _places, _stored
from tunescope.data.corpora._listed import entries
from tunescope.data.corpora._triples import Entry, xml_entries
from tunescope.data.corpora._triples import rows as rows_of
from tunescope.data.corpus_rows import Found, short
from tunescope.errors import UserError

SOURCE = (
    "Gardent et al. 2017, aclanthology.org/P17-1017; gitlab.com/shimorina/webnlg-dataset; said to be CC BY-NC-SA 4.0"
)
METRICS = ("bleu_webnlg", "bleu", "meteor", "ter")  # of the challenge, and sacrebleu's
DOMAIN = "category"  # a row is seen where the training rows have its category
OFFICIAL = {part: (f"{part}.json",) for part in ("train", "dev", "test")}
TESTS = ("testdata_with_lex.xml", "rdf-to-text-generation-test-data-with-refs-en.xml")


def splits(folder: Path) -> dict[str, _places.Files]:
    """Folders train, dev and test of XML, in `en` or `xml` too; else train.json, dev.json, test.json, or JSONL.

    The challenge's test folders also hold the tables without texts and a selection: the whole test with texts is taken.
    """
    inside = next((place for place in (folder, folder / "en", folder / "xml") if (place / "train").is_dir()), folder)
    found = {}
    for part in ("train", "dev", "test"):
        whole = [inside / part / name for name in TESTS if (inside / part / name).is_file()]
        files = [_places.one(whole, part)] if whole else sorted((inside / part).rglob("*.xml"))
        if files:
            found[part] = tuple(files)
    return found or _places.named(folder, OFFICIAL)


def rows(files: _places.Files) -> Found:
    """input: "subject : relation : object | ..." of the modified triples, names as they are, underscores and all.

    Li & Liang's code, whose form this is, also puts " | " in front of every input but the file's first: an accident,
    left out. They train only on texts marked good; here every English text is a row. category is the entry's; eid and
    size are not kept.
    """
    return rows_of(chain.from_iterable(map(_entries, files)))


def _entries(path: Path) -> Iterator[Entry]:
    name = path.name.removesuffix(".gz")
    if name.endswith(".xml"):
        return xml_entries(path)
    return _challenge(path) if name.endswith(".json") else _stored.triples(path, ("category", "seen"))


def _challenge(path: Path) -> Iterator[Entry]:
    for line, numbered in entries(path, "entries"):
        try:
            for entry in numbered.values():
                yield _entry(entry, (short(path), line))
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} line {line}: the entry has no usable {error}. Give JSON as the challenge publishes it."
            ) from error


def _entry(entry: dict[str, Any], at: tuple[str, int]) -> Entry:
    triples = tuple((one["subject"], one["property"], one["object"]) for one in entry["modifiedtripleset"])
    texts = tuple(one["lex"] for one in entry["lexicalisations"] if one.get("lang") in (None, "", "en"))
    return Entry(triples, texts, at, {"category": entry["category"]})
