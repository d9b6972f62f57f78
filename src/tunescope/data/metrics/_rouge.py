"""ROUGE of one output and its references, as rouge_score 0.1.2 with its stemmer gives it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from tunescope.data.metrics._porter import stem

WORD = re.compile(r"[a-z0-9]+")
Tokens = tuple[str, ...]


@lru_cache(maxsize=1 << 16)
def tokens(text: str) -> Tokens:
    """Runs of a to z and digits in lower case; of those longer than three, the stem."""
    return tuple(stem(word) if len(word) > 3 else word for word in WORD.findall(text.lower()))


def best(output: str, references: Sequence[str], shared: Callable[[Tokens, Tokens], tuple[int, int, int]]) -> float:
    """The highest F1 in percent over the references; `shared` -> (shared, of the output's, of the reference's)."""
    found = 0.0
    for reference in references:
        both, own, other = shared(tokens(output), tokens(reference))
        found = max(found, 200 * both / (own + other) if both else 0.0)
    return found


def n_grams(n: int) -> Callable[[Tokens, Tokens], tuple[int, int, int]]:
    """`shared` for n-grams, a repeated one as often as both have it."""

    def shared(output: Tokens, reference: Tokens) -> tuple[int, int, int]:
        a, b = _grams(output, n), _grams(reference, n)
        both = sum(min(count, b[gram]) for gram, count in a.items() if gram in b)
        return both, max(0, len(output) - n + 1), max(0, len(reference) - n + 1)

    return shared


@lru_cache(maxsize=1 << 16)
def _grams(words: Tokens, n: int) -> Counter[Tokens]:
    return Counter(zip(*(words[at:] for at in range(n)), strict=False))


def subsequence(output: Tokens, reference: Tokens) -> tuple[int, int, int]:
    """`shared` for the longest common subsequence."""
    return longest_common(output, reference), len(output), len(reference)


def longest_common(a: Tokens, b: Tokens) -> int:
    """The length of the longest common subsequence, a bit a word of `a` (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for at, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << at
    whole = (1 << len(a)) - 1
    row = whole
    for word in b:
        hit = row & places.get(word, 0)
        row = (row + hit | row - hit) & whole
    return len(a) - row.bit_count()
