"""Train, dev and test parts without leakage, cut by the content of the rows and not by their order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from unicodedata import normalize

from tunescope.data.conversations import ASKED, earlier
from tunescope.data.row import line_of
from tunescope.data.shares import LabelOf, by_label, labels_of
from tunescope.errors import UserError

Rows = Sequence[Mapping[str, Any]]
KeptRows = list[Mapping[str, Any]]


@dataclass(frozen=True)
class Splits:
    """The three parts, and in ``notes`` how they were cut. by_label: so that each part has its share of each label."""

    train: KeptRows
    dev: KeptRows
    test: KeptRows
    notes: tuple[str, ...] = ()
    by_label: bool = False

    def parts(self) -> dict[str, KeptRows]:
        return {"train": self.train, "dev": self.dev, "test": self.test}


def split(
    train: Rows,
    dev: Rows | None = None,
    test: Rows | None = None,
    *,
    seed: int = 0,
    share: float = 0.1,
    by: Sequence[str] | None = None,
    label_of: LabelOf | None = None,
) -> Splits:
    """The parts given, with those that are None cut out of ``train``, ``share`` of it each.

    Rows equal in the fields ``by`` (default: all) always go to one part. Which part depends on the rows and
    the seed, never on the rows' order. Each cut part takes whole groups, in the order of their hash, until it
    has its share (rounded, at least one row).

    label_of: a row and its index -> its label, of which each part gets its share too (`data.shares`), where there are
    rows enough for any of it.

    Raises:
        UserError: the share is not in (0, 0.5), or there are too few distinct rows for all parts.
    """
    if not 0 < share < 0.5:
        raise UserError(f"split(share={share}) must lie between 0 and 0.5. Type: share=0.1")
    wanted = [name for name, part in (("dev", dev), ("test", test)) if part is None]
    keys = keys_of(train, by, seed)
    groups = sorted(Counter(keys).items())
    if wanted and len(groups) < len(wanted) + 1:
        told = f" in {', '.join(by)}" if by else ""
        raise UserError(
            f"{len(train)} rows, of which {len(groups)} distinct{told}, cannot be cut into train and "
            f"{' and '.join(wanted)}. Give more rows, or a file for each part{', or another field' if by else ''}."
        )
    rows, part_of = max(1, round(share * len(train))), dict[str, str]()
    if wanted and label_of is not None:
        labels = labels_of(train, keys, label_of)
        part_of = by_label(groups, labels, wanted, rows)
    labelled = bool(wanted) and set(part_of.values()) == set(wanted)
    part_of = part_of if labelled else _by_hash(groups, wanted, rows)
    cut: dict[str, KeptRows] = {name: [] for name in ("train", *wanted)}
    for row, key in zip(train, keys, strict=True):
        cut[part_of.get(key, "train")].append(row)
    given = {name: list(rows) for name, rows in (("dev", dev), ("test", test)) if rows is not None}
    parts = {**cut, **given}
    notes = _notes(parts, wanted, seed, by, labelled)
    return Splits(parts["train"], parts["dev"], parts["test"], notes, labelled)


def _by_hash(groups: Sequence[tuple[str, int]], wanted: Sequence[str], rows: int) -> dict[str, str]:
    """Key -> part: so many rows for each, whatever their labels."""
    part_of: dict[str, str] = {}
    for position, name in enumerate(wanted):
        left, size = len(wanted) - position, 0  # each later part and train must get a group too
        for key, members in groups:
            if size >= rows or len(groups) - len(part_of) <= left:
                break
            if key not in part_of:
                part_of[key], size = name, size + members
    return part_of


def repeats(rows: Rows, by: Sequence[str] | None = None) -> list[int]:
    """Lines of the rows that are equal, in the fields ``by``, to an earlier one."""
    seen: set[str] = set()
    found = []
    for index, row in enumerate(rows):
        key = key_of(as_read(row, by), by)
        if key in seen:
            found.append(line_of(row, index))
        seen.add(key)
    return found


def shared(train: Rows, other: Rows, by: Sequence[str] | None = None, *, loosely: bool = False) -> list[int]:
    """Lines of the rows of ``other`` that are, in the fields ``by``, also in ``train``.

    loosely: case, blanks and the forms of a character (NFKC) in these fields aside.
    """
    read = _folded if loosely else as_read
    seen = {key_of(read(row, by), by) for row in train}
    return [line_of(row, index) for index, row in enumerate(other) if key_of(read(row, by), by) in seen]


def _folded(row: Mapping[str, Any], by: Sequence[str] | None) -> Mapping[str, Any]:
    read = as_read(row, by)
    if ASKED in (by or ()) and (before := earlier(row)):  # which is no longer to be seen once what is asked is folded
        read = {**read, ASKED: json.dumps([*before, read[ASKED]], ensure_ascii=False)}
    texts = {name: read[name] for name in by or () if isinstance(read.get(name), str)}
    return {**read, **{name: " ".join(normalize("NFKC", text).casefold().split()) for name, text in texts.items()}}


def as_read(row: Mapping[str, Any], by: Sequence[str] | None) -> Mapping[str, Any]:
    """The row with numbers and booleans in the fields ``by`` as the text that `value` makes of them."""
    told = {name: json.dumps(row[name]) for name in by or () if isinstance(row.get(name), bool | int | float)}
    return {**row, **told} if told else row


def keys_of(rows: Rows, by: Sequence[str] | None, seed: int | None = None) -> list[str]:
    """`key_of` each row; a number has the key of the same in text where a row has that, for both are read alike."""
    keys = [key_of(row, by, seed) for row in rows]
    known = set(keys)
    read = [as_read(row, by) for row in rows]
    others = [
        key if as_text is row else key_of(as_text, by, seed) for key, row, as_text in zip(keys, rows, read, strict=True)
    ]
    return [other if other in known else key for key, other in zip(keys, others, strict=True)]


def key_of(row: Mapping[str, Any], by: Sequence[str] | None, seed: int | None = None) -> str:
    """A hash of the row's content in the fields `by` (all where None); by another seed another order of the rows.

    What a conversation's user says last is with the turns before it.
    """
    values = dict(row) if by is None else {field: row.get(field) for field in by}
    if by is not None and ASKED in by and (before := earlier(row)):
        values["earlier"] = before
    content = json.dumps([seed, values], sort_keys=True, ensure_ascii=True, default=str)
    return blake2b(content.encode(), digest_size=16).hexdigest()


def _notes(
    parts: Mapping[str, Rows], wanted: Sequence[str], seed: int, by: Sequence[str] | None, by_label: bool
) -> tuple[str, ...]:
    if not wanted:
        return ()
    sizes = ", ".join(f"{len(parts[name])} {name}" for name in ("train", *wanted))
    whole = "equal rows" if by is None else f"rows with equal {' and '.join(by)}"
    return (
        f"{' and '.join(wanted)} cut from the training file by a hash of the content (seed {seed}): "
        f"{sizes} rows; {whole} stay together{', and labels have their share of each part' if by_label else ''}.",
    )
