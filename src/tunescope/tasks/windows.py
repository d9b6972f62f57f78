"""Windows of a text as a tokenizer gives them: equal stretches, spread over all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunescope.tasks.prompts.templates import Ids, ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KNOWN = 0.9  # the share of a text's letters that a tokenizer must know


@dataclass(frozen=True)
class Windows:
    """Token ids of each window, without special tokens, and the hash of the text that they are of.

    reason: why there are none.
    """

    sha256: str
    rows: tuple[Ids, ...] = ()
    reason: str = ""


def cut(text: str, tokenizer: PreTrainedTokenizerBase, length: int, count: int) -> Windows:
    """At most `count` windows of `length` tokens that do not overlap; none of a text shorter than one.

    None either, and the reason, where the tokenizer does not know nine tenths of the letters: what is then measured is
    its unknown token.
    """
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    tokens = ids(tokenizer, [text])[0]
    share = share_kept(text, tokens, tokenizer)
    if share < KNOWN:
        return Windows(sha256, reason=f"the tokenizer knows {share:.0%} of the text's letters and digits")
    whole = len(tokens) // length
    taken = [index * whole // min(count, whole) for index in range(min(count, whole))]
    return Windows(sha256, tuple(tokens[one * length : (one + 1) * length] for one in taken))


def share_kept(text: str, tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> float:
    """The share of a text's letters and digits that its tokens give back; unknown tokens give none."""
    back = tokenizer.decode(list(tokens), skip_special_tokens=True)
    given = sum(map(str.isalnum, text))
    return min(1.0, sum(map(str.isalnum, back)) / given) if given else 1.0
