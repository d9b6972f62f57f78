"""Rows that are conversations, as chat models are tuned on: {"messages": [{"role": "user", "content": "..."}, ...]}.

A row of questions and answers in turn, behind what the system says or not, gets the fields input and target, of its
last turn, and system; so does one whose prompt and completion are lists of such messages. What it has of its own stays
as it is. A row of another form stays as it is too, and why it has none of these fields is told where one is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

MESSAGES, SYSTEM = "messages", "system"
ASKED = "input"  # what the user says last
FIELDS = (SYSTEM, ASKED, "target")
SPLIT = ("prompt", "completion")
TURN = ["user", "assistant"]
SPOKEN = {"developer": SYSTEM}  # another name of the same


def is_conversation(row: Mapping[str, Any]) -> bool:
    """Whether a row holds messages."""
    return isinstance(row.get(MESSAGES), list) or all(isinstance(row.get(name), list) for name in SPLIT)


def unfold(rows: Sequence[dict[str, Any]]) -> None:
    """Give each conversation among the rows its fields, in place."""
    for row in rows:
        if is_conversation(row) and not why_not(row):
            row |= {name: text for name, text in zip(FIELDS, _texts(row), strict=True) if name not in row}


def folded(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without the fields that `unfold` gave it."""
    given = dict(zip(FIELDS, _texts(row), strict=True)) if is_conversation(row) and not why_not(row) else {}
    return {name: found for name, found in row.items() if name not in given or given[name] != found}


def as_question(row: dict[str, Any]) -> dict[str, Any]:
    """The row itself; of a conversation in which the user has the last word, a copy with any answer, unfolded."""
    name = MESSAGES if isinstance(row.get(MESSAGES), list) else SPLIT[1]
    made = copy(row)
    made[name] = [*(row.get(name) or []), {"role": TURN[1], "content": "-"}]
    if not is_conversation(made) or why_not(made):
        return row
    unfold([made])
    return made


def is_asked(row: Mapping[str, Any]) -> bool:
    """Whether a row's input is what the user of its conversation says last, and not a text of its own."""
    return is_conversation(row) and not why_not(row) and _texts(row)[1] == row.get(ASKED)


def earlier(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the user said and what was answered in each turn before the one whose input and target a row has, if any."""
    if not is_asked(row):
        return []
    texts = [_words(one) for one in _said(row) if _role(one) != SYSTEM][: -len(TURN)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def system(row: Mapping[str, Any]) -> str:
    """What the system says in a conversation, whatever the row itself has under that name."""
    return _texts(row)[0]


def messages(row: Mapping[str, Any], asked: str) -> list[dict[str, Any]]:
    """A conversation's messages with all that they have, each content a text; last the user says `asked`."""
    found = [{**one, "role": _role(one), "content": _words(one)} for one in _said(row)]
    found[-2]["content"] = asked
    return found


def why_not(row: Mapping[str, Any]) -> str:
    """Why a conversation has no such fields; "" where it has."""
    said = _said(row)
    for one in said:
        if not isinstance(one, Mapping) or not isinstance(one.get("role"), str) or _text(one.get("content")) is None:
            return (
                f'a message is {str(one)[:60]!r}, and is to be {{"role": "user", "content": "TEXT"}}, with text alone. '
                "Correct it, or leave the row out."
            )
        if one.get("tool_calls"):
            return "a message calls tools, which have no place here. Leave the row out."
    roles = list(map(_role, said))
    turns = roles[1:] if roles[:1] == [SYSTEM] else roles
    if not turns or turns != TURN * (len(turns) // len(TURN)):
        return (
            f"a conversation of {', '.join(roles) or 'no messages'}. A row is a question and its answer, or several in "
            "turn: system (or none), user, assistant, user, assistant. Correct it, or leave the row out."
        )
    return ""


def _said(row: Mapping[str, Any]) -> list[Any]:
    return list(row[MESSAGES]) if isinstance(row.get(MESSAGES), list) else [*row[SPLIT[0]], *row[SPLIT[1]]]


def _role(one: Mapping[str, Any]) -> str:
    return SPOKEN.get(one["role"], str(one["role"]))


def _text(content: Any) -> str | None:
    """What a message says, a text or a list of one {"type": "text", "text": ...}; None where it says it otherwise."""
    one = content[0] if isinstance(content, list) and len(content) == 1 else None
    found = one.get("text") if isinstance(one, Mapping) and one.get("type") == "text" else content
    return found if isinstance(found, str) else None


def _words(one: Mapping[str, Any]) -> str:
    return _text(one["content"]) or ""


def _texts(row: Mapping[str, Any]) -> tuple[str, str, str]:
    said = _said(row)
    system = _words(said[0]) if _role(said[0]) == SYSTEM else ""
    return system, _words(said[-2]), _words(said[-1])
