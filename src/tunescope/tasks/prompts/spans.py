"""Which token of a prompt with demonstrations stands for what, by the tokenizer's own character offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.methods.contexts.text import WORD, token_ids, words_before
from tunescope.tasks.prompts.demonstrations import PARTS, Demonstration, joined

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Border = tuple[int, int, int, str]  # start, stop, number of the demonstration, part


@dataclass(frozen=True)
class Spans:
    """Demonstrations as token ids, each token with the part that it stands for.

    ids: as a `Text` context has them, the tokenizer's start token among them.
    places: for every demonstration, part -> positions in `ids`; a token is in one part of one demonstration. The
        start token, and what a chat begins with, are in none.
    names: the label of every demonstration.
    notes: tokens that reach over the border of a label word, in words.
    """

    ids: tuple[int, ...]
    places: tuple[dict[str, tuple[int, ...]], ...]
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[tuple[int, ...], ...]:
        """The positions of every demonstration's label word."""
        return tuple(place["label"] for place in self.places)

    @property
    def anchors(self) -> tuple[str, ...]:
        """The same, as `Reweight(anchors=...)` takes them."""
        return tuple("/".join(map(str, positions)) for positions in self.labels)

    def of(self, *parts: str) -> tuple[int, ...]:
        """All positions of these parts, ascending."""
        return tuple(sorted(at for place in self.places for part in parts for at in place[part]))


def spans(tokenizer: PreTrainedTokenizerBase, demonstrations: Sequence[Demonstration], head: str = "") -> Spans:
    """The demonstrations tokenised as one text, behind the head of a chat.

    A token belongs to the part that its characters, white space aside, lie in; one of white space alone to the part
    that it begins in. A token that reaches from a label word into its neighbour is the label's, and is noted; the space
    before the word is not.

    Raises UserError for a tokenizer that tells no offsets, fewer than two labels, and a label word without a token of
    its own.
    """
    names = tuple(demonstration.name for demonstration in demonstrations)
    if len(set(names)) < 2:
        raise UserError(f"Demonstrations of one label only, {names[0]!r}, or of none: give two labels at least.")
    text = head + joined(demonstrations)
    ids, offsets = _tokens(tokenizer, text)
    borders = _borders(demonstrations, len(head))
    places: tuple[dict[str, tuple[int, ...]], ...] = tuple(dict.fromkeys(PARTS, ()) for _ in demonstrations)
    notes = []
    for at, (start, stop) in enumerate(offsets):
        if stop <= start:
            continue  # the start token
        touched = _touched(text, start, stop, borders)
        if not touched:
            continue  # the chat's head
        number, part = next((found for found in touched if found[1] == "label"), touched[0])
        if part == "label" and len(_between(text, start, stop, borders)) > 1:
            notes.append(f"The label word {demonstrations[number].label!r} shares the token {text[start:stop]!r}.")
        places[number][part] += (at,)
    for place, demonstration in zip(places, demonstrations, strict=True):
        if not place["label"]:
            raise UserError(f"The label word {demonstration.label!r} comes to no token of its own: choose another.")
    return Spans(ids, places, names, tuple(dict.fromkeys(notes)))


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The ids that a `Text` context has, and the characters that each stands for; (0, 0) for the start token."""
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(
            f"{type(tokenizer).__name__} tells no offsets; load the model's fast tokenizer (use_fast=True)."
        )
    ids = tuple(token_ids(tokenizer, text))
    for read in (text + WORD, text):  # in front of a word, where that has none of the text's characters
        encoded = tokenizer(read, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        extra = len(ids) - len(words_before(tokenizer, text))
        if tuple(encoded["input_ids"][: len(ids) - extra]) == ids[extra:]:
            break
    offsets = encoded["offset_mapping"][: len(ids) - extra]
    return ids, [(0, 0)] * extra + [(int(start), int(stop)) for start, stop in offsets]


def _borders(demonstrations: Sequence[Demonstration], start: int) -> list[Border]:
    """Of every part that has characters, in order; start: where the first begins."""
    found = []
    for number, demonstration in enumerate(demonstrations):
        for part in PARTS:
            stop = start + len(getattr(demonstration, part))
            if stop > start:
                found.append((start, stop, number, part))
            start = stop
    return found


def _touched(text: str, start: int, stop: int, borders: Sequence[Border]) -> list[tuple[int, str]]:
    """The parts that a token's characters lie in, white space around them aside."""
    inside = text[start:stop]
    if not inside.strip():
        return _between(text, start, start + 1, borders)
    return _between(text, start, start + len(inside.rstrip()), borders)


def _between(text: str, start: int, stop: int, borders: Sequence[Border]) -> list[tuple[int, str]]:
    """The parts from the first character that is no white space; where there is none, from the first."""
    inside = text[start:stop]
    start += len(inside) - len(inside.lstrip()) if inside.strip() else 0
    return [(number, part) for low, high, number, part in borders if low < stop and start < high]
