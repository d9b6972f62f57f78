"""Which tokens a prompt may be made of, and whether a prompt's text comes back to the same tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import regex

from tunescope.errors import UserError
from tunescope.methods.contexts.text import token_ids, words_before
from tunescope.search.frame import BARE, Frame
from tunescope.tasks.prompts.label_words import encoded
from tunescope.tasks.prompts.mask import place
from tunescope.tasks.prompts.templates import Ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNDECODED = "\ufffd"  # what stands for bytes that are no whole character
UNSEEN = regex.compile(r"[\s\p{Default_Ignorable_Code_Point}]*")  # blanks, joiners, variation selectors and the like
TURNING = regex.compile(r"[\p{Cc}\p{Bidi_Control}]")  # what turns the writing round, or is no writing
AGAIN = 4  # times that a text is encoded and decoded before it counts as one that never settles


@dataclass(frozen=True)
class Vocabulary:
    """Tokens that are each their own text: decoded alone and encoded again, each is the same one token.

    Where a word and its continuation are different tokens, as in sentencepiece and WordPiece, that leaves whole words.
    Tokens that are allowed can still merge where they meet, so a prompt as a whole is asked with `comes_back`.

    ids: the allowed tokens, ascending. start: what the tokenizer puts in front of a text, or the tokens of what stands
    there in the frame; end: of what stands behind. left_out: why -> how many. special: tokens that no prompt may come
    to.
    """

    tokenizer: PreTrainedTokenizerBase
    ids: Ids
    start: Ids
    left_out: Mapping[str, int]
    ban: tuple[str, ...] = ()
    special: frozenset[int] = frozenset()
    frame: Frame = BARE
    end: Ids = ()

    def text(self, ids: Sequence[int]) -> str:
        return decoded(self.tokenizer, ids)

    def whole(self, ids: Sequence[int]) -> Ids:
        """The prompt with all that stands around it."""
        return (*self.start, *ids, *self.end)

    def comes_back(self, ids: Sequence[int]) -> bool:
        """Whether the prompt is what its own text encodes to, start token aside, and holds no banned string."""
        return self.all_come_back([ids])[0]

    def all_come_back(self, prompts: Sequence[Sequence[int]]) -> list[bool]:
        """`comes_back` of each, encoded together."""
        texts = [self.text(ids) for ids in prompts]
        return [
            one == tuple(ids) and not _banned(text, self.ban)
            for one, ids, text in zip(self._again(texts), prompts, texts, strict=True)
        ]

    def settled(self, ids: Sequence[int]) -> tuple[str, Ids] | None:
        """(text, its tokens with what stands around them) of a prompt, in the form that comes back to itself.

        None where encoding and decoding never settle, nothing is left, or a token or string is not allowed.
        """
        for _ in range(AGAIN):
            text = self.text(ids)
            (again,) = self._again([text])
            if again is None:
                return None
            if again == tuple(ids):
                is_special = not self.special.isdisjoint(again)  # the unknown token is one
                is_allowed = again and not is_special and UNDECODED not in text and not _banned(text, self.ban)
                return (text, self.whole(again)) if is_allowed else None
            ids = again
        return None

    def _again(self, texts: Sequence[str]) -> list[Ids | None]:
        """Each text's tokens where it stands; None where they are one with those around, or it does not stand there."""
        whole = [self.frame.around(text) for text in texts]
        again = self.tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        front = (*words_before(self.tokenizer, self.frame.before),)  # without the tokenizer's own, not added here
        found: list[Ids | None] = []
        for text, one in zip(texts, map(tuple, again), strict=True):
            own = one[len(front) : len(one) - len(self.end)]
            stands = (*front, *own, *self.end) == one and self.frame.takes(text)
            found.append(own if stands else None)
        return found


def vocabulary(
    tokenizer: PreTrainedTokenizerBase, rows: int, ban: tuple[str, ...] = (), frame: Frame = BARE
) -> Vocabulary:
    """The tokens that a prompt may be made of.

    Left out, each token for the first reason that holds: rows of the embedding table that the tokenizer has no token
    for; special tokens; parts of characters; control characters, and what nobody can see alone; what does not
    come back to itself; what holds a banned string, whatever its case.

    Args:
        rows: of the model's embedding table.
        frame: what stands around a prompt.

    Raises:
        UserError: a banned string is empty, or nothing is left.
    """
    if not all(ban):
        raise UserError("ban has an empty string, which every token holds; name strings, as in ban=good,bad.")
    reasons = dict(_reasons(tokenizer, rows, ban))
    left_out = Counter(reason for reason in reasons.values() if reason)
    allowed = tuple(index for index, reason in reasons.items() if not reason)
    if not allowed:
        told = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        raise UserError(f"No token is left to make a prompt of: of {rows}, {told}. Ban less.")
    special = _special(tokenizer)
    start, end = _in_front(tokenizer, frame.before), _plain(tokenizer, frame.behind)
    return Vocabulary(tokenizer, allowed, start, dict(left_out), ban, special, frame, end)


def _in_front(tokenizer: PreTrainedTokenizerBase, text: str) -> Ids:
    """The text's tokens, behind what the tokenizer begins any text with; that alone where there is none."""
    if text:
        return tuple(token_ids(tokenizer, text))
    plain, whole = _plain(tokenizer, "a"), token_ids(tokenizer, "a")
    return tuple(whole[: len(whole) - len(plain)])


def _plain(tokenizer: PreTrainedTokenizerBase, text: str) -> Ids:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else ()


def decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
    return text


def _reasons(tokenizer: PreTrainedTokenizerBase, rows: int, ban: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(token, why it is left out), "" for one that is allowed, in order."""
    known = {index for index in tokenizer.get_vocab().values() if index < rows}
    special = _special(tokenizer)
    texts = {index: decoded(tokenizer, [index]) for index in sorted(known - special)}
    again = tokenizer(list(texts.values()), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    stable = {index for index, one in zip(texts, again, strict=True) if one == [index]}
    for index in range(rows):
        if index not in known:
            yield index, "without a token"
        elif index in special:
            yield index, "special"
        elif UNDECODED in texts[index]:
            yield index, "parts of characters"
        elif UNSEEN.fullmatch(texts[index]) or TURNING.search(texts[index]):
            yield index, "blanks and control characters"
        elif index not in stable:
            yield index, "that come back as others"
        else:
            yield index, "banned" if _banned(texts[index], ban) else ""


def _special(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    named = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(named | {*map(int, tokenizer.all_special_ids)})


def _banned(text: str, ban: tuple[str, ...]) -> bool:
    return any(one.casefold() in text.casefold() for one in ban)


def whole_words(
    tokenizer: PreTrainedTokenizerBase, template: str, model_kind: str, space: str | None = None
) -> dict[int, str]:
    """Token id -> word, for every token that is the start of a word, all letters, and the whole answer by itself.

    The tokenizer decides: a word is one that it encodes, at the answer's place, to that one token again. The start of a
    longer word ("terr" of "terrific") passes as well, since a vocabulary does not tell. space: as in `word_tokens`.

    Raises UserError for a template without a place for the answer.
    """
    at = place(template, tokenizer, model_kind)
    special = set(tokenizer.all_special_ids)
    texts = {token: tokenizer.decode([token]).strip() for token in range(len(tokenizer)) if token not in special}
    letters = {token: text for token, text in texts.items() if text.isalpha()}
    again = encoded(tokenizer, at, list(letters.values()), model_kind, space)
    return {token: text for (token, text), ids in zip(letters.items(), again, strict=True) if ids == (token,)}
