"""Words in front of a text as messages: demonstrations as turns where their ends are certain, else one instruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.demonstrations import END

Message = dict[str, str]


def messages(text: str, task: Mapping[str, Any]) -> list[Message]:
    """OpenAI-style messages that say the text: user and assistant in turn for demonstrations, or one of the system.

    task: what the artifact says of its task; its template tells where a demonstration's answer begins.
    """
    turns = demonstrated(text, task)
    return turns if turns else [{"role": "system", "content": text.strip()}]


def demonstrated(text: str, task: Mapping[str, Any]) -> list[Message]:
    """The demonstrations of a text as turns; none where it holds no others, or where one ends cannot be told.

    Each ends in a blank line and holds the end of the template once; a text or answer with either in it is not taken
    apart by guessing.
    """
    template = str(task.get("template") or "")
    end = templates.tail(template) if template else ""
    space = templates.separator(template)
    *solved, rest = text.split(END)
    found: list[Message] = []
    for one in solved:
        front, _, answer = one.partition(end + space)
        certain = end.strip() and answer and one.count(end + space) == 1
        if not certain or not front.startswith(_head(template)) or answer not in (_words(task) or [answer]):
            return []
        found += [{"role": "user", "content": front + end}, {"role": "assistant", "content": answer}]
    return [] if rest else found


def _head(template: str) -> str:
    """What a template has before its first field."""
    filled = templates.fill(template, dict.fromkeys(templates.fields(template), "\0"))
    return filled.partition("\0")[0]


def _words(task: Mapping[str, Any]) -> list[str]:
    return list((task.get("words") or {}).values())
