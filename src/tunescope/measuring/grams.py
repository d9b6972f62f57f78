"""Runs of tokens, counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

Gram = tuple[str, ...]


def grams(words: Sequence[str], longest: int) -> Iterator[Gram]:
    """Every run of 1 to `longest` tokens, as often as it occurs."""
    return chain.from_iterable(zip(*(words[at:] for at in range(n)), strict=False) for n in range(1, longest + 1))
