"""New rows for an arm of a finished run: read, and made what can be asked, with answers of their own or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.data import conversations
from tunescope.data.read import read
from tunescope.data.row import check_characters, check_lengths, every_row, place, value
from tunescope.errors import UserError
from tunescope.tasks.task import labelled

if TYPE_CHECKING:
    from tunescope.tasks.task import Labelled
    from tunescope.trial.bench import Bench

SHOWN = 10  # labels in a message

Rows = Sequence[Mapping[str, Any]]


def given(data: str | Path | Rows, longest: int | None) -> list[dict[str, Any]]:
    """The rows of a file, or given ones as a file's would be. UserError where there are none, or one cannot be read."""
    if isinstance(data, str | Path):
        return read(data, longest)
    rows = [dict(row) for row in data]
    if not rows:
        raise UserError("There are no rows to answer. Give one at least.")
    for index, row in enumerate(rows):
        check_characters(row, place(row, index))
    conversations.unfold(rows)
    check_lengths(rows, longest)
    return rows


def posed(bench: Bench, rows: Sequence[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, those without an answer as copies that can be asked. UserError for a row that lacks what is asked."""
    with_turns = [conversations.as_question(row) for row in rows]
    for name in bench.task.fields():
        every_row(with_turns, partial(_text, name))
    found = [bench.task.as_question(row) for row in with_turns]
    if bench.task.is_labelled:
        every_row(found, partial(_known, labelled(bench.task)))
    return found


def _known(task: Labelled, row: Mapping[str, Any], index: int) -> None:
    """UserError for a label that the run has not."""
    if (label := task.label_of(row, index)) not in task.labels:
        some = ", ".join(task.labels[:SHOWN]) + ", ..." * (len(task.labels) > SHOWN)
        raise UserError(f"{place(row, index)}: label {label!r} is none of the run's: {some}. Correct it, or empty it.")


def _text(name: str, row: Mapping[str, Any], index: int) -> str:
    return value(row, name, index)
