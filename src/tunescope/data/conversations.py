"""Rows that are conversations, as chat models are tuned on: {"messages": [{"role": "user", "content": "..."}, ...]}.

A row of one question and its answer, behind what the system says or not, gets the fields input, target and system; so
does one whose prompt and completion are lists of such messages. What it has of its own stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tunescope.data.row import place
from tunescope.errors import UserError

MESSAGES, SYSTEM = "messages", "system"
SPLIT = ("prompt", "completion")
ROLES = (["user", "assistant"], [SYSTEM, "user", "assistant"])


def is_conversation(row: Mapping[str, Any]) -> bool:
    """Whether a row holds messages."""
    return isinstance(row.get(MESSAGES), list) or all(isinstance(row.get(name), list) for name in SPLIT)


def unfold(rows: Sequence[dict[str, Any]]) -> None:
    """Give each conversation among the rows its fields, in place.

    Raises UserError for messages of another form, of several turns, or without words.
    """
    for index, row in enumerate(rows):
        if is_conversation(row):
            said = row[MESSAGES] if isinstance(row.get(MESSAGES), list) else [*row[SPLIT[0]], *row[SPLIT[1]]]
            row |= {name: text for name, text in _fields(said, place(row, index)).items() if name not in row}


def _fields(said: Sequence[Any], where: str) -> dict[str, str]:
    for one in said:
        if not isinstance(one, Mapping) or not all(isinstance(one.get(key), str) for key in ("role", "content")):
            raise UserError(
                f'{where}: a message is {str(one)[:60]!r}, and is to be {{"role": "user", "content": "TEXT"}}, with '
                "text alone. Correct it, or leave the row out."
            )
    if (roles := [one["role"] for one in said]) not in ROLES:
        raise UserError(
            f"{where}: a conversation of {', '.join(roles) or 'no messages'}. A row is one question and its answer: "
            "system (or none), user, assistant. Make each later turn a row of its own, or leave it out."
        )
    return {
        SYSTEM: said[0]["content"] if len(said) > 2 else "",
        "input": said[-2]["content"],
        "target": said[-1]["content"],
    }
