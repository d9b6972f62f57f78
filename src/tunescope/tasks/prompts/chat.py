"""Rows asked as the user's turns of a chat, in the words that the tokenizer's chat template writes around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from tunescope.errors import UserError
from tunescope.system import shell
from tunescope.tasks.prompts import mask
from tunescope.tasks.prompts.chat_template import turns
from tunescope.tasks.prompts.turns import Turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Asks(Protocol):
    """What of a task says how a row is asked."""

    @property
    def template(self) -> str: ...
    @property
    def chat(self) -> bool: ...
    @property
    def system(self) -> str: ...
    @property
    def turns(self) -> Turns | None: ...


def check_chat(task: Asks) -> None:
    """Raises UserError for what the system says where there is no chat."""
    if task.system and not task.chat:
        raise UserError(f"--system {task.system[:40]!r} is what the system of a chat says. Type: --chat --system TEXT")


def in_turns(task: Asks, tokenizer: PreTrainedTokenizerBase, model_kind: str) -> Turns | None:
    """The task's turns; None where it is no chat. Raises UserError as `turns`, and for what is no decoder."""
    if not task.chat:
        return None
    if model_kind != "decoder":
        raise UserError(f"--chat asks in the turns that a decoder goes on with, and this is an {model_kind}.")
    if (parts := mask.halves(task.template)) is not None:
        raise UserError(
            f"Template {task.template!r} has {{mask}}, and in a chat the answer is the turn that follows. Type: "
            f"--template {shell.word(parts[0].strip())}"
        )
    return turns(tokenizer, task.system, task.template)


def asked(task: Asks) -> str:
    """The template as it is put to the model. Raises UserError for a chat that was not prepared."""
    if not task.chat:
        return task.template
    if task.turns is None:
        raise UserError(
            "The task does not know the chat's turns yet. Type: task = task.prepare({'train': rows}, tokenizer, "
            "model_kind='decoder')"
        )
    return task.turns.asked(task.template)


def described(task: Asks) -> dict[str, Any]:
    """What a result says of the chat; {} where there is none."""
    if task.turns is None:
        return {}
    told = asdict(task.turns)
    if not task.turns.day:
        del told["day"]  # which earlier versions did not have
    return {"chat": told, "system": task.system}


def head_of(task: Asks) -> str | None:
    """What a chat begins with; None where there is none."""
    return task.turns.head if task.turns else None


def space_of(task: Asks) -> str | None:
    """What stands between the template and an answer, as the chat template has it; None where there is no chat."""
    return task.turns.gap if task.turns else None


def values_of(task: Asks, values: Mapping[str, str]) -> Mapping[str, str]:
    """The fields of a row as they are put to the model."""
    return task.turns.values(task.template, values) if task.turns else values


def notes_of(turns: Turns | None) -> list[str]:
    return [turns.note] if turns and turns.note else []
