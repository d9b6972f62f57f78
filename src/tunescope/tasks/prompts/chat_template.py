"""A tokenizer's chat template, cut into what it writes around the words of a chat.

It is rendered by the tokenizer with placeholders for the user's and the assistant's words, and cut at these. So a row
has the tokens of `apply_chat_template(messages)`, up to where the assistant's own words begin; a start token is there
where the chat template writes it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.tasks.prompts import templates
from tunescope.tasks.prompts.day import SPARE, kept_day, on_day
from tunescope.tasks.prompts.turns import Turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

USER, ASSISTANT, SYSTEM = "uQ7xu{}\n\n  uxQ7u", "aQ7xa{}\n\n  axQ7a", "sQ7xsxQ7s"  # to be written as they are
ANSWERED = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
SAID = [{"role": "system", "content": SYSTEM}, *ANSWERED]
SIGNS = tuple(map(chr, range(33, 127)))
BEGINNINGS = (*SIGNS, *(sign + "a" for sign in SIGNS), "The", "é", "日", "😀", "\n", "\n\n", " a", "\ta")  # of words
ENDINGS = ("a", "1", ".", "!", ")", '"', "日")  # of an answer, and of what a system says
LONG = 4  # characters of a template that part what stands before them from what is filled in behind
LATER = "its chat template writes a turn otherwise where others follow or stand before"
JOINED = "with this tokenizer a token between two turns may hold the end of one and the beginning of the next"
UNBEGUN = "its chat template leaves out the start token, which stands in front of other texts"
DIFFERS = "The chat template begins an answer that is still to be written otherwise than one that is there."


def turns(tokenizer: PreTrainedTokenizerBase, system: str = "", template: str = "") -> Turns:
    """The parts of the tokenizer's chat template.

    system: what the system says; "" leaves it to the chat template, which may have words of its own for that. template:
    of what the user says.

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
    cut, trims = _cut(tokenizer, system), _trims(tokenizer)
    border, single = _border(tokenizer, [cut, *([] if system else _told(tokenizer))], template, trims), ""
    if border is None:
        border = _border(tokenizer, [cut], template, trims)
    if border is None:
        border, single = cut.usual, JOINED if cut.is_steady else LATER
    if not single and _is_begun(tokenizer) and not cut.first.startswith(str(tokenizer.bos_token)):
        single = UNBEGUN
    dated = _is_dated(tokenizer, system)
    return Turns(
        head=cut.first.removesuffix(border),
        before=border,
        lead=_open(cut.lead),
        shown=_open(cut.shown),
        end=cut.end,
        space=cut.lead.removeprefix(_open(cut.lead)),
        stop=_stop(tokenizer, cut.end),
        trims=trims,
        single=single,
        note=" ".join(note for note in (_note(tokenizer, system, cut), _day(tokenizer) if dated else "") if note),
        joint=None if cut.end + border == cut.between else cut.between.removesuffix(border),
        day=str(kept_day(tokenizer) or "") if dated or _is_dated(tokenizer, SYSTEM) else "",
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
    def usual(self) -> str:
        """What stands in front of the user's words in every turn, behind what ends the last; "" if there is none."""
        before = self.between.removeprefix(self.end)
        return before if self.between.startswith(self.end) and self.first.endswith(before) else ""

    @cached_property
    def is_steady(self) -> bool:
        """Whether a turn is written the same with others and alone."""
        return (self.start, self.last) == (self.first, self.lead)


def head_saying(tokenizer: PreTrainedTokenizerBase, system: str, template: str = "") -> str:
    """What stands before the first turn where the system says that. Raises UserError as `turns`."""
    found = turns(tokenizer, template=template)
    _check_system(tokenizer)
    cut, single = _cut(tokenizer, system), found.single
    if not single and (not cut.is_steady or cut.between != found.between + found.before):
        single = LATER
    both = [_cut(tokenizer, ""), *_told(tokenizer)]
    if not single and _border(tokenizer, both, template, found.trims) is None:
        single = JOINED
    if single:
        raise UserError(f"A text in front of a chat is what its system says, and {single}.")
    return cut.first.removesuffix(found.before)


def _cut(tokenizer: PreTrainedTokenizerBase, system: str) -> _Cut:
    (first, lead, behind), (start, shown, between, last, _) = (_parted(tokenizer, system, count) for count in (1, 2))
    return _Cut(first, lead, behind, start, shown, between, last, _end(behind, between, tokenizer))


def _told(tokenizer: PreTrainedTokenizerBase) -> list[_Cut]:
    """What is written where the system says something, in a chat template that has a place for it."""
    return [_cut(tokenizer, SYSTEM)] if SYSTEM in _tried(tokenizer, SAID)[0] else []


def _border(tokenizer: PreTrainedTokenizerBase, cuts: list[_Cut], template: str, trims: bool) -> str | None:
    """How much of what stands in front of the user's words goes with these, so that no token is of both sides.

    None where there is no such border, and in a chat template whose turns are others among others.
    """
    if not all(cut.is_steady for cut in cuts):
        return None
    shared, texts = cuts[0].first, [text for cut in cuts for text in (cut.first, cut.between)]
    while not all(text.endswith(shared) for text in texts):
        shared = shared[1:]
    usual = [cuts[0].usual] if shared.endswith(cuts[0].usual) else []
    every = dict.fromkeys([*usual, *(shared[at:] for at in range(len(shared) + 1))])
    said = template.strip() if trims else template
    literal = (templates.pieces(said) or [("", None, "", "")])[0][0]
    begun = [literal + one for one in (BEGINNINGS if len(literal) < LONG else BEGINNINGS[:1])]
    words = [one for one in begun if not (trims and one[:1].isspace())]
    fronts = [front for cut in cuts for front in _fronts(cut)]
    return next((one for one in every if _is_clean(tokenizer, fronts, one, words)), None)


def _fronts(cut: _Cut) -> set[str]:
    """What the user's words may stand behind."""
    firsts = {cut.first.replace(SYSTEM, SYSTEM + ending) for ending in ENDINGS}
    return firsts | {ending + cut.between for ending in ENDINGS}


def _is_clean(tokenizer: PreTrainedTokenizerBase, fronts: Sequence[str], border: str, words: Sequence[str]) -> bool:
    """Whether the words have the same tokens from the border on, whether they are read alone or behind the fronts."""
    said = [border + word for word in words]
    behind = templates.ids(tokenizer, said)
    for head in (front.removesuffix(border) for front in fronts):
        (before,), whole = templates.ids(tokenizer, [head]), templates.ids(tokenizer, [head + one for one in said])
        if any(one != before + word for one, word in zip(whole, behind, strict=True)):
            return False
    return True


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


def _is_dated(tokenizer: PreTrainedTokenizerBase, system: str) -> bool:
    """Whether the chat template writes the day where the system says that, or nothing."""
    said = [*([{"role": "system", "content": system}] if system else []), *ANSWERED]
    one, other = (_tried(on_day(tokenizer, day), said) for day in SPARE)
    return one != other


def _day(tokenizer: PreTrainedTokenizerBase) -> str:
    day = kept_day(tokenizer)
    return f"The chat template writes the day: here {day or 'that of each call'}, and a server writes its own."


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
