"""Triples as a line of text, and one row for each text that says them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunescope.data.corpora._nodes import Node, root
from tunescope.data.corpus_rows import Found, left_out, short
from tunescope.data.row import Row
from tunescope.errors import UserError

Triple = tuple[str, str, str]


@dataclass(frozen=True)
class Entry:
    """Triples and the texts for them, with what else the row is to have. `at` is its file's name and line."""

    triples: tuple[Triple, ...]
    texts: tuple[str, ...]
    at: tuple[str, int]
    more: dict[str, Any] = field(default_factory=dict)


def linear(triples: Sequence[Triple]) -> str:
    """ "subject : relation : object | ...", as Li & Liang (2021) write triples in front of GPT-2."""
    return " | ".join(" : ".join(triple) for triple in triples)


def rows(entries: Iterator[Entry], lower_relations: bool = False) -> Found:
    """A row for each text; entries with no text and empty texts are left out and counted, entries that repeat counted.

    Raises:
        UserError: an entry has no triple.
    """
    found, without, empty, again = [], 0, 0, 0
    seen: set[str] = set()
    for entry in entries:
        name, line = entry.at
        if not entry.triples:
            raise UserError(f"{name} line {line} has no triple. Delete the entry, or take the file anew.")
        said = [(s, r.lower() if lower_relations else r, o) for s, r, o in entry.triples]
        texts = [text.strip() for text in entry.texts]
        without, empty = without + (not texts), empty + texts.count("")
        source, kept = linear(said), list(filter(None, texts))
        again += bool(kept) and source in seen
        seen |= {source} if kept else set()
        found += [Row({"input": source, "target": text, **entry.more}, name, line) for text in kept]
    once = (
        (f"{again:,} entries have the triples of an earlier one, and are scored as one input with it",) if again else ()
    )
    return Found(found, left_out(without, "entries without a text") + left_out(empty, "empty texts") + once)


def xml_entries(path: Path) -> Iterator[Entry]:
    """The entries of WebNLG's XML, which DART's is too: the modified triples and every English text.

    Raises:
        UserError: the file is not such XML, or a triple has not three parts.
    """
    found = list(root(path).all("entry"))
    if not found:
        raise UserError(f"{path} has no <entry>. Give XML as WebNLG and DART are published.")
    for entry in found:
        more = {"category": entry.attributes["category"]} if "category" in entry.attributes else {}
        triples = tuple(triple(node, path) for group in entry.all("modifiedtripleset") for node in group.all("mtriple"))
        texts = tuple(map(_text, filter(_is_english, entry.all("lex"))))
        yield Entry(triples, texts, (short(path), entry.line), more)


def triple(node: Node, path: Path) -> Triple:
    parts = [part.strip() for part in node.text.split(" | ")]
    if len(parts) != 3:
        raise UserError(f"{path} line {node.line}: {node.text.strip()!r} is no triple 'subject | relation | object'.")
    return parts[0], parts[1], parts[2]


def _is_english(lex: Node) -> bool:
    return lex.attributes.get("lang") in (None, "", "en")


def _text(lex: Node) -> str:
    inner = next(lex.all("text"), lex)  # enriched releases put templates beside the text
    return inner.text
