"""Porter's stems (1980), with the changes that NLTK makes to them and rouge_score therefore has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

IRREGULAR = {
    "skies": "sky",
    "sky": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}
SECOND = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
)
THIRD = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
FOURTH = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _past(_plural(word))
    if word.endswith("y") and len(word) > 2 and _kinds(word)[-2] == "c":
        word = word[:-1] + "i"
    return _end(_fourth(_replaced(_second(word), THIRD)))


def _kinds(word: str) -> str:
    """c for a consonant, v for a vowel, letter by letter; y is a vowel behind a consonant."""
    found = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and found.endswith("c"))
        found += "v" if vowel else "c"
    return found


def _measure(word: str) -> int:
    return _kinds(word).count("vc")


def _ends_short(word: str) -> bool:
    """Consonant, vowel, consonant, the last not w, x or y; or just a vowel and a consonant."""
    kinds = _kinds(word)
    return kinds == "vc" or (kinds.endswith("cvc") and word[-1] not in "wxy")


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for suffix in ("ed", "ing"):
        left = word.removesuffix(suffix)
        if left != word and "v" in _kinds(left):
            return _mended(left)
    return word


def _mended(word: str) -> str:
    """What is left when -ed or -ing is gone."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _kinds(word)[-1] == "c":
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _replaced(word: str, rules: Sequence[tuple[str, str]]) -> str:
    """By the first rule whose suffix the word has, if anything of measure is left in front of it."""
    for suffix, new in rules:
        if word.endswith(suffix):
            left = word.removesuffix(suffix)
            return left + new if _measure(left) else word
    return word


def _second(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _second(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word
    return _replaced(word, SECOND)


def _fourth(word: str) -> str:
    for suffix in FOURTH:
        if word.endswith(suffix):
            left = word.removesuffix(suffix)
            goes = _measure(left) > 1 and (suffix != "ion" or left[-1] in "st")
            return left if goes else word
    return word


def _end(word: str) -> str:
    if word.endswith("e"):
        left = word[:-1]
        measure = _measure(left)
        if measure > 1 or (measure == 1 and not _ends_short(left)):
            word = left
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
