"""Short answers as SQuAD's script compares them (Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1)."""

from __future__ import annotations

import re
import string
from collections import Counter

PUNCTUATION = str.maketrans("", "", string.punctuation)
COMPARED = "as in SQuAD's script: case, punctuation and a, an, the ignored, of several references the best; from 0 to 1"


def words(text: str) -> list[str]:
    """Without case, punctuation and articles."""
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split()


def f1(output: str, reference: str) -> float:
    """Of the words in both; two texts without words are alike."""
    ours, theirs = words(output), words(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    both = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * both / (len(ours) + len(theirs))
