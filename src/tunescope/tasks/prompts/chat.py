"""Rows asked as the user's turns of a chat, in the words that the tokenizer's chat template writes around them.

The template is rendered once, by the tokenizer, with placeholders for the user's and the assistant's words, and cut at
these. So a row has the tokens of `apply_chat_template(messages)`, up to where the assistant's own words begin; a start
token is there where the chat template writes it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tunescope.errors import UserError
from tunescope.tasks.prompts import mask, templates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

USER, ASSISTANT = "uQ7xu{}uxQ7u", "aQ7xa{}axQ7a"  # no chat template changes these
LATER = "its chat template writes a later turn otherwise than a first one"
UNBEGUN = "its chat template leaves out the start token, which stands in front of other texts"
DIFFERS = "The chat template begins an answer that is still to be written otherwise than one that is there."


@dataclass(frozen=True)
class Turns:
    """What a chat template writes, as it stands.

    head: before the first turn, the system's with it. before: in front of the user's words. lead: from these to an
    answer. shown: the same of an answer that further turns follow. space: what an answer brings along in front. end:
    from an answer to the next turn. stop: the token that ends an answer; None, the tokenizer's own end token. trims:
    whether white space around the user's words goes. single: why a chat has one turn alone; "", if more. note: how what
    a server begins an answer with is another, if it is.
    """

    head: str
    before: str
    lead: str
    shown: str
    end: str
    space: str = ""
    stop: int | None = None
    trims: bool = False
    single: str = ""
    note: str = ""
    opening: str = ""

    def asked(self, template: str) -> str:
        """The template as the last turn, which is to be answered."""
        begun = self.space + self.opening if self.opening else ""
        return templates.escaped(self.before) + self._said(template) + templates.escaped(self.lead + begun)

    @property
    def gap(self) -> str:
        """What stands between `asked` and what is answered."""
        return templates.separator(templates.escaped(self.opening)) if self.opening else self.space

    def solved(self, template: str) -> str:
        """The template as a turn that was answered, with others behind."""
        return templates.escaped(self.before) + self._said(template) + templates.escaped(self.shown)

    def values(self, template: str, values: Mapping[str, str]) -> Mapping[str, str]:
        """The fields of a row as the chat template leaves them at the edges of what the user says."""
        if not self.trims:
            return values
        pieces = templates.pieces(template.strip())
        (front, first, _, _), (_, last, _, _) = pieces[0], pieces[-1]
        found = dict(values)
        if first is not None and not front:
            found[first] = found[first].lstrip()
        if last is not None:
            found[last] = found[last].rstrip()
        return found

    def turn(self, said: str, answer: str) -> str:
        """A turn that was answered, in these words."""
        said, answer = (said.strip(), answer.strip()) if self.trims else (said, answer)
        return self.before + said + self.shown + self.space + answer + self.end

    def _said(self, template: str) -> str:
        return template.strip() if self.trims else template


def turns(tokenizer: PreTrainedTokenizerBase, system: str = "") -> Turns:
    """The parts of the tokenizer's chat template.

    system: what the system says; "" leaves it to the chat template, which may have words of its own for that.

    Raises UserError for a tokenizer without a chat template, and for one that writes the words of a turn otherwise than
    they are given, or leaves out what the system says.
    """
    if not tokenizer.chat_template:
        raise UserError(
            "--chat asks in the turns of the tokenizer's chat template, and this one has none. Leave it out, or take "
            "the model that was tuned for chats."
        )
    if system:
        _check_system(tokenizer)
    first, lead, behind = _cut(tokenizer, system, 1)
    start, shown, between, last, _ = _cut(tokenizer, system, 2)
    end = _end(behind, between, tokenizer)
    before = between.removeprefix(end)
    later = not between.startswith(end) or not before or not first.endswith(before) or (start, last) != (first, lead)
    single = LATER if later else ""
    if not later and _is_begun(tokenizer) and not first.startswith(str(tokenizer.bos_token)):
        single = UNBEGUN
    parts = ("", first, _open(lead), "", end)
    if not later:
        parts = (first.removesuffix(before), before, _open(lead), _open(shown), end)
    return Turns(
        *parts,
        space=lead.removeprefix(_open(lead)),
        stop=_stop(tokenizer, end),
        trims=_trims(tokenizer),
        single=single,
        note=_note(tokenizer, system, first, lead),
    )


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
            f"--template {parts[0].strip()!r}"
        )
    return turns(tokenizer, task.system)


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
    return {"chat": asdict(task.turns), "system": task.system} if task.turns else {}


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


def head_saying(tokenizer: PreTrainedTokenizerBase, system: str) -> str:
    """What stands before the first turn where the system says that. Raises UserError as `turns`."""
    found = turns(tokenizer, system)
    if found.single:
        raise UserError(f"A text in front of a chat is what its system says, and {found.single}.")
    return found.head


def _cut(tokenizer: PreTrainedTokenizerBase, system: str, count: int) -> list[str]:
    """What stands before, between and behind the words of `count` turns and their answers."""
    words = [one.format(number) for number in range(count) for one in (USER, ASSISTANT)]
    said = [{"role": "user" if at % 2 == 0 else "assistant", "content": word} for at, word in enumerate(words)]
    text = rendered(tokenizer, [*([{"role": "system", "content": system}] if system else []), *said])
    parts = []
    for word in words:
        part, found, text = text.partition(word)
        if not found or word in text:
            raise UserError("--chat: this chat template does not write the words of a turn as they are. Leave it out.")
        parts.append(part)
    return [*parts, text]


def _check_system(tokenizer: PreTrainedTokenizerBase) -> None:
    """UserError for a chat template that has no place for a system, or none where an answer follows."""
    mark, asks = "sQ7xsxQ7s", {"role": "user", "content": "a"}
    said = [{"role": "system", "content": mark}, asks, {"role": "assistant", "content": "b"}]
    has = mark in _tried(tokenizer, said)[0]
    if not has:
        raise UserError(
            "--chat: this chat template has no place for what a system says, in front of an answer. Leave it out, or "
            "say it in the user's words: --template"
        )


def _trims(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether white space around what the user says is gone."""
    word = f"\t{USER.format(0)}\t"  # with a space a template's own would be taken for it
    return word not in rendered(tokenizer, [{"role": "user", "content": word}, {"role": "assistant", "content": "b"}])


def _note(tokenizer: PreTrainedTokenizerBase, system: str, first: str, lead: str) -> str:
    """How an answer that is to be written begins otherwise than one that is there; "" where it does not."""
    word, head = USER.format(0), [{"role": "system", "content": system}] if system else []
    asked, ours = [*head, {"role": "user", "content": word}], (first + word + lead).rstrip(" ")
    for more in ({}, {"enable_thinking": False}):
        text, _ = _tried(tokenizer, asked, add_generation_prompt=True, **more)
        if text.rstrip(" ") == ours:
            return "" if not more else f"{DIFFERS} Ask it with enable_thinking=false."
    return f"{DIFFERS} What was tuned is what stands before an answer in a chat that has one."


def rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    text, problem = _tried(tokenizer, messages)
    if problem:
        raise UserError(f"--chat: the tokenizer's chat template refuses a plain conversation: {problem}")
    return text


def _tried(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], **more: bool) -> tuple[str, str]:
    """What the chat template makes of them, or why it makes nothing."""
    from jinja2 import TemplateError

    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, **more)), ""
    except (TemplateError, TypeError, ValueError) as problem:
        return "", str(problem) or type(problem).__name__


def _end(behind: str, between: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """What ends a turn that others follow: some chat templates write the text's end token behind the last alone."""
    shorter = behind.removesuffix(str(tokenizer.eos_token or ""))
    return shorter if shorter and not between.startswith(behind) else behind


def _open(lead: str) -> str:
    """Without the one space that an answer brings."""
    return lead[:-1] if lead.endswith(" ") and not lead[:-1][-1:].isspace() else lead


def _is_begun(tokenizer: PreTrainedTokenizerBase) -> bool:
    return bool(templates.edges(tokenizer)[0])


def _stop(tokenizer: PreTrainedTokenizerBase, end: str) -> int | None:
    """The token of its own that ends an answer, behind white space at most; None where words do."""
    for token in templates.ids(tokenizer, [end])[0] if end else ():
        if token in tokenizer.added_tokens_decoder:
            return token
        if tokenizer.decode([token]).strip():
            return None
    return None
