"""JSONL copies: entries with lists in their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tunescope.data.corpora._triples import Entry
from tunescope.data.read import of_any_length
from tunescope.data.row import place
from tunescope.errors import UserError


def triples(path: Path, kept: Sequence[str] = ()) -> Iterator[Entry]:
    """Entries of rows with `triples`, [[subject, relation, object], ...], and `references`, [text, ...].

    kept: further fields, where a row has them.

    Raises:
        UserError: a row has no such fields.
    """
    for index, row in enumerate(of_any_length(path)):
        said, texts = row.get("triples"), row.get("references")
        if not is_triples(said) or not is_texts(texts):
            raise UserError(
                f"{place(row, index)} needs 'triples', a list of [subject, relation, object], and 'references', a "
                f"list of texts. It has: {', '.join(row)}."
            )
        more = {name: row[name] for name in kept if name in row}
        yield Entry(tuple(map(tuple, said)), tuple(texts), (path.name, getattr(row, "line", index + 1)), more)  # type: ignore[arg-type]


def is_triples(given: object) -> bool:
    return isinstance(given, list) and all(is_texts(one) and len(one) == 3 for one in given)


def is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)
