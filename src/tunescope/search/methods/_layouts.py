"""Where a template's fields, its answer and the words between them stand, for the model that writes and for ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.tasks.prompts.templates import Ids, escaped

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ANSWER = ""  # among a layout's items: no field is named so


@dataclass(frozen=True)
class Layout:
    """Items in order: a field's name, ANSWER, or the number of a span to be written.

    ends: the answer follows the template and {mask} is not written, as a decoder has it.
    """

    items: tuple[str | int, ...]
    ends: bool

    @property
    def n_spans(self) -> int:
        return sum(isinstance(item, int) for item in self.items)

    def asked(self, word: str) -> str:
        """The template that the writing model reads, sentinels where the spans are, the word where the answer is."""
        shown = [f"<extra_id_{item}>" if isinstance(item, int) else f"{{{item}}}" for item in self.items]
        answers = [item == ANSWER for item in self.items]
        return " ".join(escaped(word) if answer else one for one, answer in zip(shown, answers, strict=True))

    def template(self, spans: Sequence[str]) -> str:
        """The template with these spans: a span brings its own leading space; white space at both ends goes."""
        whole = ""
        for item in self.items:
            if isinstance(item, int):
                whole += escaped(spans[item])
            elif not (item == ANSWER and self.ends):
                whole += ("" if not whole or whole[-1].isspace() else " ") + f"{{{item or 'mask'}}}"
        return whole.strip()


def layouts(fields: Sequence[str], *, ends: bool) -> list[Layout]:
    """The layouts of Gao et al. 2021 (section 5.2, table E.1): around the answer, behind the text or before it, or
    between two texts. Where the answer ends the template there is one: the texts, a span, the answer.

    Raises UserError for more than two fields around an answer in the middle.
    """
    if ends:
        return [Layout((*fields, 0, ANSWER), ends=True)]
    if len(fields) == 1:
        return [Layout((fields[0], 0, ANSWER, 1), ends=False), Layout((0, ANSWER, 1, fields[0]), ends=False)]
    if len(fields) == 2:
        return [Layout((fields[0], 0, ANSWER, 1, fields[1]), ends=False)]
    raise UserError(
        f"template writes around one field or between two, and the task's template has {len(fields)}: "
        f"{', '.join(fields)}. Join some of them in the data."
    )


def spoken(tokenizer: PreTrainedTokenizerBase, span: Ids) -> str:
    """The span's text as it goes on from a word, its leading space with it; runs of white space are one space."""
    before = tokenizer("a", add_special_tokens=False)["input_ids"]
    start, whole = (
        tokenizer.decode(list(ids), clean_up_tokenization_spaces=False) for ids in (before, [*before, *span])
    )
    return re.sub(r"\s+", " ", whole[len(start) :]).rstrip()


def text_tokens(tokenizer: PreTrainedTokenizerBase, forbid: Sequence[str]) -> Ids:
    """The tokens that a span may hold: none that is special, blank or all underscores, none that says `forbid`."""
    special, banned = set(tokenizer.all_special_ids), set(forbid)
    texts: Mapping[int, str] = {
        token: tokenizer.decode([token]).strip() for token in range(len(tokenizer)) if token not in special
    }
    return tuple(token for token, text in texts.items() if text.strip("_ ") and text not in banned)
