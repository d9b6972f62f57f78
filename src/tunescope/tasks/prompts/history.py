"""Rows that are conversations: what their system says, and the turns in front of the one that is answered."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunescope.data import conversations
from tunescope.data.conversations import ASKED, SYSTEM, is_conversation
from tunescope.data.row import place
from tunescope.errors import UserError
from tunescope.tasks.prompts import chat, demonstrations, mask, templates
from tunescope.tasks.prompts.demonstrations import Demonstration

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tunescope.tasks.prompts.chat import Asks

Rows = Sequence[Mapping[str, Any]]


def earlier(task: Asks, rows: Rows) -> list[tuple[str, ...]]:
    """The turns in front of each row's own, as the chat template writes them, oldest first."""
    turns = task.turns
    if turns is None or ASKED not in mask.fields(task.template):
        return [()] * len(rows)
    return [tuple(turns.turn(*one) for one in conversations.earlier(row)) for row in rows]


def solved(task: Asks, row: Mapping[str, Any], values: Mapping[str, str], answer: str, name: str = "") -> Demonstration:
    """A row as it is shown in front of others, with its answer (of the label of that name). values: its fields."""
    turns = task.turns
    template, end = (turns.solved(task.template), turns.end) if turns else (task.template, demonstrations.END)
    asked = chat.values_of(task, values)
    made = demonstrations.solved(template, asked, name, answer, end, chat.space_of(task))
    return replace(made, prefix="".join(earlier(task, [row])[0]) + made.prefix)


def checked(task: Asks, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """What is to be told of the conversations among the rows.

    Raises UserError where what is said in them would be left out, or read otherwise than the chat template has it.
    """
    rows = [row for part in splits.values() for row in part]
    asks = ASKED in mask.fields(task.template)
    found = [row for row in rows if is_conversation(row)] if asks else []
    several = [(index, row) for index, row in enumerate(rows) if conversations.earlier(row)] if asks else []
    _check_system(task, {str(row.get(SYSTEM, "")) for row in found}, bool(several))
    for index, row in several:
        _check_turns(task, row, place(row, index), tokenizer)
    if not several:
        return []
    return [
        f"{len(several):,} of {len(rows):,} rows are conversations of several turns: the last answer is learned and "
        "scored, all turns before it are read."
    ]


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
        raise UserError(f"The system of these conversations says otherwise. Type: --system {_quoted(said.pop())}")


def _check_turns(task: Asks, row: Mapping[str, Any], where: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises UserError where the chat template writes these turns otherwise than they will be read."""
    turns = task.turns
    if turns is None:
        return
    if turns.single:
        raise UserError(f"{where}: a conversation of several turns, and {turns.single}. Leave the row out.")
    values = {name: str(row.get(name, "")) for name in mask.fields(task.template)}
    ours = turns.head + "".join(earlier(task, [row])[0])
    ours += templates.fill(turns.asked(task.template), turns.values(task.template, values)) + turns.space
    said = [{"role": SYSTEM, "content": task.system}] if task.system else []
    for asked, answer in [*conversations.earlier(row), (templates.fill(task.template, values), chat.ASSISTANT)]:
        said += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    if not chat.rendered(tokenizer, said).startswith(ours + chat.ASSISTANT):
        raise UserError(
            f"{where}: the chat template writes earlier turns of this conversation otherwise than they are: it may "
            "take white space around them, or thoughts. Take that out of the row."
        )


def _quoted(text: str) -> str:
    """As a shell takes it, on one line."""
    if "\n" not in text:
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{plain}'"
