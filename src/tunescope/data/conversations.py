"""Rows that are conversations, as chat models are tuned on: {"messages": [{"role": "user", "content": "..."}, ...]}.

A row of one question and its answer, behind what the system says or not, gets the fields input, target and system; so
does one whose prompt and completion are lists of such messages. What it has of its own stays as it is. A row of another
form stays as it is too, and why it has none of these fields is told where one is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MESSAGES, SYSTEM = "messages", "system"
FIELDS = (SYSTEM, "input", "target")
SPLIT = ("prompt", "completion")
ROLES = (["user", "assistant"], [SYSTEM, "user", "assistant"])
SPOKEN = {"developer": SYSTEM}  # another name of the same


def is_conversation(row: Mapping[str, Any]) -> bool:
    """Whether a row holds messages."""
    return isinstance(row.get(MESSAGES), list) or all(isinstance(row.get(name), list) for name in SPLIT)


def unfold(rows: Sequence[dict[str, Any]]) -> None:
    """Give each conversation among the rows its fields, in place."""
    for row in rows:
        if is_conversation(row) and not why_not(row):
            row |= {name: text for name, text in zip(FIELDS, _texts(row), strict=True) if name not in row}


def why_not(row: Mapping[str, Any]) -> str:
    """Why a conversation has no such fields; "" where it has."""
    said = _said(row)
    for one in said:
        if not isinstance(one, Mapping) or not all(isinstance(one.get(key), str) for key in ("role", "content")):
            return (
                f'a message is {str(one)[:60]!r}, and is to be {{"role": "user", "content": "TEXT"}}, with text alone. '
                "Correct it, or leave the row out."
            )
        if one.get("tool_calls"):
            return "a message calls tools, which have no place here. Leave the row out."
    roles = [SPOKEN.get(one["role"], one["role"]) for one in said]
    if roles not in ROLES:
        return (
            f"a conversation of {', '.join(roles) or 'no messages'}. A row is one question and its answer: system (or "
            "none), user, assistant. Make each later turn a row of its own, or leave it out."
        )
    return ""


def _said(row: Mapping[str, Any]) -> list[Any]:
    return list(row[MESSAGES]) if isinstance(row.get(MESSAGES), list) else [*row[SPLIT[0]], *row[SPLIT[1]]]


def _texts(row: Mapping[str, Any]) -> tuple[str, str, str]:
    *head, asked, answered = (str(one["content"]) for one in _said(row))
    return "".join(head), asked, answered
