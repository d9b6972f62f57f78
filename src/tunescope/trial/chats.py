"""What an arm's text is where rows are asked as turns of a chat, and what cannot be asked so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.tasks.prompts.chat_template import head_saying
from tunescope.tasks.prompts.turns import Turns

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench


def turns_of(bench: Bench) -> Turns | None:
    """The turns that rows are asked in; None where they are asked as plain text."""
    found: Turns | None = getattr(bench.task, "turns", None)
    return found


def in_chat(specs: Sequence[Any], bench: Bench, *, shown: bool) -> tuple[Any, ...]:
    """The specs, a hard prompt among them as the head of a chat whose system says it; shown: behind demonstrations.

    Raises UserError where a text would stand between turns, or beside what the system says already.
    """
    from tunescope.methods.contexts.text import Text

    if turns_of(bench) is None:
        return tuple(specs)
    texts = [spec for spec in specs if isinstance(spec, Text)]
    if texts and (shown or len(texts) > 1 or bench.task.system):  # type: ignore[attr-defined]
        beside = "demonstrations" if shown else "another text" if len(texts) > 1 else "--system"
        raise UserError(f"In a chat a text is what the system says, and stands alone: leave {beside} out, or the text.")
    return tuple(replace(spec, text=said(bench, spec.text)) if isinstance(spec, Text) else spec for spec in specs)


def said(bench: Bench, text: str) -> str:
    """A text as it stands in front of all rows: in a chat within its head, as what the system says.

    Raises UserError for a chat that has no place for it.
    """
    if turns_of(bench) is None:
        return text
    task: Any = bench.task
    if task.system:
        raise UserError("In a chat a text is what the system says: leave --system out, or the text.")
    return head_saying(bench.tokenizer, text, task.template)


def check_turns(bench: Bench, what: str) -> None:
    """UserError where the chat template has no place for demonstrations."""
    turns = turns_of(bench)
    if turns is not None and turns.single:
        raise UserError(f"{what}: demonstrations are earlier turns of a chat, and {turns.single}. Leave them out.")


def check_no_chat(bench: Bench, what: str) -> None:
    """UserError for what reads a row as plain text. what: "anchors looks at ..."."""
    if turns_of(bench) is not None:
        raise UserError(f"{what} and with --chat a row is a turn of a chat. Leave --chat out.")
