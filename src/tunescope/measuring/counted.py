"""The n-grams of many texts at once, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order: in which text, which of `n_grams` there are, how often; sorted by text and gram."""

    text: Integers
    gram: Integers
    count: Integers
    n_grams: int


def counted(texts: Sequence[Sequence[str]], longest: int) -> Iterator[Counts]:
    """The counts at the orders 1 to `longest`."""
    vocabulary: dict[str, int] = {}
    words = np.array([vocabulary.setdefault(word, len(vocabulary)) for text in texts for word in text], dtype=np.int64)
    text = np.repeat(np.arange(len(texts)), [len(one) for one in texts])
    starts, grams, n_grams = np.arange(len(words)), words, max(1, len(vocabulary))
    for order in range(1, longest + 1):
        if order > 1:
            is_whole = starts + order - 1 < len(words)
            is_whole[is_whole] = text[starts[is_whole] + order - 1] == text[starts[is_whole]]
            starts, front = starts[is_whole], grams[is_whole]
            different, grams = np.unique(front * len(vocabulary) + words[starts + order - 1], return_inverse=True)
            n_grams = max(1, len(different))
        found, count = np.unique(text[starts] * n_grams + grams, return_counts=True)
        yield Counts(found // n_grams, found % n_grams, count, n_grams)
