"""A hard prompt: words in front of the text. Demonstrations are text, built by a task's template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, Params, TokenContext

WORD = "a"  # one that any tokenizer knows


@dataclass(frozen=True)
class Text(TokenContext):
    """The tokens of `text`, with the tokenizer's own start token where it has one; nothing is trained.

    The text that follows is then tokenised without a start token of its own.

    Tensors: "ids" (tokens,), whole numbers.

    Raises UserError, once it meets a model, without a tokenizer, and for a text without tokens.
    """

    served_as: ClassVar[str] = "messages"

    text: str = ""
    whole_numbers = ("ids",)

    def shapes(self, base: Base) -> dict[str, tuple[int, ...]]:
        return {"ids": (len(self._encode(base)),)}

    def init(self, base: Base) -> Params:
        return {"ids": torch.tensor(self._encode(base), dtype=torch.long)}

    def embeddings(self, p: Params, embed: Callable[[Tensor], Tensor]) -> Tensor:
        return embed(p["ids"])

    def _encode(self, base: Base) -> list[int]:
        if base.tokenizer is None:
            raise UserError("Text needs the model's tokenizer: attach(model, Text(...), tokenizer=tokenizer).")
        ids = token_ids(base.tokenizer, self.text)
        if not ids:
            raise UserError("Text(text='') has no tokens: give it words, as in text:text=Classify the review.")
        return ids


def token_ids(tokenizer: object, text: str) -> list[int]:
    """The text's ids behind what the tokenizer begins a text with, and without its end token.

    That is a start token, as BERT's [CLS], or more: a language in NLLB, two tokens in GLM. White space at the end of
    the text has the ids that it has in front of a word; see `words_before`.
    """
    plain = words_before(tokenizer, text)
    return [*_front(tokenizer, plain), *plain]


def words_before(tokenizer: object, text: str) -> list[int]:
    """The text's ids as they are in front of a word.

    Of a text that ends in white space these need not be its own: GPT-2's tokenizer has one id for two line ends that
    nothing follows, and two where a word does. They are its own where the word would take the white space with it.
    """
    own: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]  # type: ignore[operator]
    if text == text.rstrip():
        return own
    word: list[int] = tokenizer(WORD, add_special_tokens=False)["input_ids"]  # type: ignore[operator]
    both: list[int] = tokenizer(text + WORD, add_special_tokens=False)["input_ids"]  # type: ignore[operator]
    return (both[: -len(word)] if word and both[-len(word) :] == word else own) or own


def last_ids(tokenizer: object, text: str, length: int) -> list[int]:
    """The last `length` ids of the text behind what it begins with, the text over and over where it is too short.

    Raises UserError for a text without tokens.
    """
    words = words_before(tokenizer, text)
    start = _front(tokenizer, words)
    if not words:
        raise UserError(f"init_from='demos' begins as the tokens of text={text!r}, which has none.")
    left = length - len(start)
    return [*start, *(words * -(-left // len(words)))[-left:]][-length:] if left > 0 else start[:length]


def check_read(name: str, text: str, begin: str | None, starts: Sequence[str]) -> None:
    """Raises UserError for the text of a context, one of this name, whose start does not read it.

    starts: those that do.
    """
    if text and begin not in starts:
        begins = f"that begins as {begin!r}" if begin else "without init_from"
        raise UserError(
            f"{name}(text={text[:40]!r}) {begins} does not read its text. Add init_from={starts[0]!r} "
            f"(or {' or '.join(map(repr, starts[1:]))}), or leave text out."
        )


def _front(tokenizer: object, plain: list[int]) -> list[int]:
    """What the tokenizer puts in front of any text; nothing where these ids begin with it already."""
    word: list[int] = tokenizer(WORD, add_special_tokens=False)["input_ids"]  # type: ignore[operator]
    whole: list[int] = tokenizer(WORD)["input_ids"]  # type: ignore[operator]
    places = range(len(whole) - len(word) + 1)
    front = next((whole[:start] for start in places if whole[start : start + len(word)] == word), [])
    return [] if plain[: len(front)] == front else front
