"""Words in front of a text as messages: demonstrations as turns where their ends are certain, else one instruction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.chat_template import head_saying, rendered
from tunescope.tasks.prompts.day import on_day
from tunescope.tasks.prompts.demonstrations import END
from tunescope.tasks.prompts.turns import Turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, str]
MARK = "sQ7xsxQ7s"  # no chat template changes it


def messages(text: str, task: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> list[Message]:
    """OpenAI-style messages that say the text: user and assistant in turn for demonstrations, or one of the system.

    task: what the artifact says of its task; its template tells where a demonstration's answer begins.

    Raises UserError for the turns of a chat that cannot be told apart again.
    """
    if task.get("chat"):
        return _chat(text, task, tokenizer)
    turns = demonstrated(text, task)
    return turns if turns else [{"role": "system", "content": text.strip()}]


def _chat(text: str, task: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> list[Message]:
    """Of a text that was written by the chat template, what it was written of: both render to the same."""
    turns = Turns(**task["chat"])
    tokenizer = on_day(tokenizer, turns.day)
    behind = [{"role": "user", "content": MARK}, {"role": "assistant", "content": "b"}]
    for found in _readings(text, turns, task, tokenizer):
        if found and rendered(tokenizer, [*found, *behind]).startswith(text + turns.before + MARK):
            return found
    raise UserError("--to messages: these turns of a chat cannot be told apart again. Use --to embeds.")


def _readings(
    text: str, turns: Turns, task: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
) -> Iterator[list[Message]]:
    """What the text may say: demonstrations behind a chat's head, or a hard prompt, which is what the system says."""
    system = str(task.get("system") or "")
    head = [{"role": "system", "content": system}] if system else []
    shown = _demonstrations(text, turns)
    yield head + shown if all(one["content"] for one in shown) else []
    front, _, end = head_saying(tokenizer, MARK, str(task.get("template") or "")).partition(MARK)
    said = text.removeprefix(front).removesuffix(end)
    if not turns.shown.strip() or turns.shown not in said:  # else an answer is in it
        yield [{"role": "system", "content": said}]


def _demonstrations(text: str, turns: Turns) -> list[Message]:
    """Those in a text that is a chat's head and these, as far as they go."""
    found: list[Message] = []
    rest = text.removeprefix(turns.head)
    while rest and rest.startswith(turns.before):
        said, _, rest = rest.removeprefix(turns.before).partition(turns.shown)
        answer, more, rest = rest.removeprefix(turns.space).partition(turns.between or turns.before)
        rest = rest if turns.between else more + rest  # where nothing ends an answer the next turn does
        found += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
    return found


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
