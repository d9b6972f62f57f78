"""Tokens as in mteval-v13a and in the E2E challenge's metrics, which ignore case."""

from __future__ import annotations

import re
from functools import lru_cache

REPLACED = (("<skipped>", ""), ("-\n", ""), ("\n", " "), ("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
APART = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),  # punctuation, but for period, comma, dash, apostrophe
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


@lru_cache(maxsize=1 << 16)
def tokens(text: str) -> tuple[str, ...]:
    """The text's tokens in lower case; a period or comma between digits stays with them."""
    for old, new in REPLACED:
        text = text.replace(old, new)
    text = f" {text} "
    for pattern, apart in APART:
        text = pattern.sub(apart, text)
    return tuple(text.lower().split())
