"""A tokenizer's chat template, cut into what it writes around the words of a chat.

It is rendered by the tokenizer with placeholders for the user's and the assistant's words, and cut at these. So a row
has the tokens of `apply_chat_template(messages)`, up to where the assistant's own words begin; a start token is there
where the chat template writes it, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.turns import Turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

USER, ASSISTANT, SYSTEM = "uQ7xu{}uxQ7u", "aQ7xa{}axQ7a", "sQ7xsxQ7s"  # no chat template changes these
ANSWERED = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
SAID = [{"role": "system", "content": SYSTEM}, *ANSWERED]
EDGES = ("a", "The", "1", '"', "(", "é", "\n", " a")  # what the user's words may begin with
LATER = "its chat template writes a turn otherwise where others follow or stand before"
JOINED = "between its turns are tokens that hold the end of what the chat template writes and the user's first words"
UNBEGUN = "its chat template leaves out the start token, which stands in front of other texts"
DIFFERS = "The chat template begins an answer that is still to be written otherwise than one that is there."


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
    cut = _cut(tokenizer, system)
    trims = _trims(tokenizer)
    joint = cut.is_steady and (not cut.is_even or (not system and _is_joint_beside(tokenizer, cut, trims)))
    single = "" if cut.is_steady else LATER
    if joint and not _is_clean(tokenizer, cut, trims):
        single = JOINED
    if not single and _is_begun(tokenizer) and not cut.first.startswith(str(tokenizer.bos_token)):
        single = UNBEGUN
    parts = (cut.first, "", _open(cut.lead), _open(cut.shown), cut.end)
    if not joint and cut.is_steady:
        parts = (cut.first.removesuffix(cut.before), cut.before, *parts[2:])
    return Turns(
        *parts,
        space=cut.lead.removeprefix(_open(cut.lead)),
        stop=_stop(tokenizer, cut.end),
        trims=trims,
        single=single,
        note=" ".join(note for note in (_note(tokenizer, system, cut), _day(tokenizer)) if note),
        joint=cut.between if joint else "",
    )


@dataclass(frozen=True)
class _Cut:
    """What a chat template writes before, between and behind the words of one turn, and of two.

    first, lead, behind: of one. start, shown, between, last: of two. end: what ends an answer.
    """

    first: str
    lead: str
    behind: str
    start: str
    shown: str
    between: str
    last: str
    end: str

    @cached_property
    def before(self) -> str:
        """In front of the user's words in a later turn, without what ends the one before."""
        return self.between.removeprefix(self.end)

    @cached_property
    def is_even(self) -> bool:
        """Whether a later turn begins as the first one does, and the last ends as those before."""
        return self.between.startswith(self.end) and bool(self.before) and self.first.endswith(self.before)

    @cached_property
    def is_steady(self) -> bool:
        """Whether a turn is written the same with others and alone."""
        return (self.start, self.last) == (self.first, self.lead)


def head_saying(tokenizer: PreTrainedTokenizerBase, system: str) -> str:
    """What stands before the first turn where the system says that. Raises UserError as `turns`."""
    found = turns(tokenizer, system)
    if single := found.single or ("" if found.before == turns(tokenizer).before else LATER):
        raise UserError(f"A text in front of a chat is what its system says, and {single}.")
    return found.head


def _cut(tokenizer: PreTrainedTokenizerBase, system: str) -> _Cut:
    (first, lead, behind), (start, shown, between, last, _) = (_parted(tokenizer, system, count) for count in (1, 2))
    return _Cut(first, lead, behind, start, shown, between, last, _end(behind, between, tokenizer))


def _is_joint_beside(tokenizer: PreTrainedTokenizerBase, cut: _Cut, trims: bool) -> bool:
    """Whether a system would make the first turn another than later ones: then it is cut so without one too."""
    if SYSTEM not in _tried(tokenizer, SAID)[0]:
        return False
    told = _cut(tokenizer, SYSTEM)
    return told.is_steady and not told.is_even and all(_is_clean(tokenizer, one, trims) for one in (cut, told))


def _is_clean(tokenizer: PreTrainedTokenizerBase, cut: _Cut, trims: bool) -> bool:
    """Whether no token holds what stands before the user's words and some of these."""
    said = [
        (front, word) for front in (cut.first, "a" + cut.between) for word in EDGES if not (trims and word[0].isspace())
    ]
    whole, fronts, words = (
        templates.ids(tokenizer, those)
        for those in (["".join(one) for one in said], *map(list, zip(*said, strict=True)))
    )
    return all(one == front + word for one, front, word in zip(whole, fronts, words, strict=True))


def _parted(tokenizer: PreTrainedTokenizerBase, system: str, count: int) -> list[str]:
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
    if SYSTEM not in _tried(tokenizer, SAID)[0]:
        raise UserError(
            "--chat: this chat template has no place for what a system says, in front of an answer. Leave it out, or "
            "say it in the user's words: --template"
        )


def _trims(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether white space around what the user says is gone."""
    word = f"\t{USER.format(0)}\t"  # with a space a template's own would be taken for it
    return word not in rendered(tokenizer, [{"role": "user", "content": word}, {"role": "assistant", "content": "b"}])


def _note(tokenizer: PreTrainedTokenizerBase, system: str, cut: _Cut) -> str:
    """How an answer that is to be written begins otherwise than one that is there; "" where it does not."""
    word, head = USER.format(0), [{"role": "system", "content": system}] if system else []
    asked, ours = [*head, {"role": "user", "content": word}], (cut.first + word + cut.lead).rstrip(" ")
    for more in ({}, {"enable_thinking": False}):
        text, _ = _tried(tokenizer, asked, add_generation_prompt=True, **more)
        if text.rstrip(" ") == ours:
            return "" if not more else f"{DIFFERS} Ask it with enable_thinking=false."
    return f"{DIFFERS} What was tuned is what stands before an answer in a chat that has one."


def _day(tokenizer: PreTrainedTokenizerBase) -> str:
    """That the chat template writes the day; "" where it does not."""
    if _tried(tokenizer, ANSWERED) == _tried(tokenizer, ANSWERED, strftime_now=str):  # the day's form, and no day
        return ""
    return "The chat template writes the day: a run that goes on another day asks its rows anew."


def rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    text, problem = _tried(tokenizer, messages)
    if problem:
        raise UserError(f"--chat: the tokenizer's chat template refuses a plain conversation: {problem}")
    return text


def _tried(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], **more: Any) -> tuple[str, str]:
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
