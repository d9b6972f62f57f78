"""Rows that are conversations: what their system says, and the turns in front of the one that is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunescope.data import conversations
from tunescope.data.conversations import ASKED, SYSTEM, is_conversation, system
from tunescope.data.row import place
from tunescope.errors import UserError
from tunescope.system import shell
from tunescope.tasks.prompts import chat, chat_template, demonstrations, mask, templates
from tunescope.tasks.prompts.demonstrations import Demonstration

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunescope.tasks.prompts.chat import Asks
    from tunescope.tasks.prompts.turns import Turns

Rows = Sequence[Mapping[str, Any]]
UNREAD = "the template does not ask for {input}, or they have an input of their own"
LEARNED = "the last answer is learned and scored, all turns before it are read"


def earlier(task: Asks, rows: Rows) -> list[tuple[str, ...]]:
    """The turns in front of each row's own, as the chat template writes them, oldest first."""
    return [before(task.turns, task.template, row) for row in rows]


def before(turns: Turns | None, template: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """The turns in front of a row that is asked by this template; none where it asks no conversation."""
    if turns is None or ASKED not in mask.fields(template):
        return ()
    return tuple(turns.turn(*one) for one in conversations.earlier(row))


def solved(task: Asks, row: Mapping[str, Any], values: Mapping[str, str], answer: str, name: str = "") -> Demonstration:
    """A row as it is shown in front of others, with its answer (of the label of that name). values: its fields."""
    turns = task.turns
    template, end = (turns.solved(task.template), turns.between) if turns else (task.template, demonstrations.END)
    asked = chat.values_of(task, values)
    made = demonstrations.solved(template, asked, name, answer, end, chat.space_of(task))
    return replace(made, prefix="".join(earlier(task, [row])[0]) + made.prefix)


def checked(task: Asks, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """What is to be told of the conversations among the rows.

    Raises UserError where what is said in them would be left out, or read otherwise than the chat template has it.
    """
    rows = [(place(row, index), row) for part in splits.values() for index, row in enumerate(part)]
    asks = ASKED in mask.fields(task.template)
    found = [(where, row) for where, row in rows if asks and conversations.is_asked(row)]
    several = sum(bool(conversations.earlier(row)) for _, row in found)
    _check_system(task, {system(row) for _, row in found}, bool(several))
    if task.turns is not None:
        for where, row in found:
            _check_read(task, task.turns, row, where, tokenizer)
    others = sum(is_conversation(row) for _, row in rows) - len(found)
    notes = [f"{others:,} of {len(rows):,} rows have messages that are not read: {UNREAD}."] if others else []
    if several:
        notes.append(f"{several:,} of {len(rows):,} rows are conversations of several turns: {LEARNED}.")
    return notes


def _check_system(task: Asks, said: set[str], several: bool) -> None:
    """Raises UserError for conversations that are asked as plain text, and for what the system says in them."""
    told = SYSTEM in mask.fields(task.template)
    if said and not task.chat and (several or not told):
        raise UserError("The rows are conversations, and would be asked as plain text. Type: --chat")
    if not said or told or said == {""}:
        return
    if len(said) > 1:
        raise UserError(
            f"The system says {len(said):,} different things in these conversations, and a chat begins with one. Say "
            "it in the user's words: --template $'{system}\\n\\n{input}'"
        )
    if said != {task.system}:
        raise UserError(f"The system of these conversations says otherwise. Type: --system {shell.word(said.pop())}")


def _check_read(
    task: Asks, turns: Turns, row: Mapping[str, Any], where: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raises UserError where the chat template writes a conversation otherwise than it will be read."""
    if turns.single == chat_template.LATER and conversations.earlier(row):
        raise UserError(f"{where}: a conversation of several turns, and {turns.single}. Leave the row out.")
    values = {name: str(row.get(name, "")) for name in mask.fields(task.template)}
    ours = turns.head + "".join(earlier(task, [row])[0])
    ours += templates.fill(turns.asked(task.template), turns.values(task.template, values)) + turns.space
    said = conversations.messages(row, templates.fill(task.template, values))
    if SYSTEM in values or not system(row):
        given = [{"role": SYSTEM, "content": task.system}] if task.system else []
        said = given + [one for one in said if one["role"] != SYSTEM or (not given and SYSTEM not in values)]
    text = chat_template.rendered(tokenizer, said)
    answer = str(row["target"]).strip() if getattr(task, "target", None) == "target" else ""
    if not text.startswith(ours) or not text[len(ours) :].lstrip().startswith(answer):
        raise UserError(
            f"{where}: the chat template writes this conversation otherwise than it would be read: it may leave out "
            "thoughts, add what a message has beside its text, or take white space. Take that out of the row."
        )
