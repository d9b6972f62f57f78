"""The words of a vocabulary that can stand alone as an answer."""

from __future__ import annotations

from typing import Any

from tunescope.tasks.label_words import encoded
from tunescope.tasks.masking import place


def whole_words(tokenizer: Any, template: str, model_kind: str) -> dict[int, str]:
    """Token id -> word, for every token that is the start of a word, all letters, and the whole answer by itself.

    The tokenizer decides: a word is one that it encodes, at the answer's place, to that one token again. The start of a
    longer word ("terr" of "terrific") passes as well, since a vocabulary does not tell.

    Raises UserError for a template without a place for the answer.
    """
    at = place(template, tokenizer, model_kind)
    special = set(tokenizer.all_special_ids)
    texts = {token: tokenizer.decode([token]).strip() for token in range(len(tokenizer)) if token not in special}
    letters = {token: text for token, text in texts.items() if text.isalpha()}
    again = encoded(tokenizer, at, list(letters.values()), model_kind)
    return {token: text for (token, text), ids in zip(letters.items(), again, strict=True) if ids == (token,)}
