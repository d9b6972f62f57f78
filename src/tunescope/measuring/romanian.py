"""Romanian as translations into it are scored: punctuation normalised, diacritics dropped, Moses' tokens.

(Sennrich et al. 2016, arXiv:1606.02891, whose scripts everyone after them ran.) Many texts of the training data spell
the letters without marks or with the wrong ones, and so do models.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from tunescope.errors import UserError

PLAIN = str.maketrans("ŞşȘșŢţȚțĂăÂâÎî", "SsSsTtTtAaAaIi")  # cedillas, then the commas that they stand for


def tokens(texts: Sequence[str]) -> list[str]:
    """Each text with spaces between its tokens."""
    normal, splitter = _moses()
    return [
        str(splitter.tokenize(normal.normalize(text).translate(PLAIN), escape=False, return_str=True)) for text in texts
    ]


def check() -> None:
    """Raises UserError where sacremoses is not installed."""
    _moses()


@cache
def _moses() -> tuple[Any, Any]:
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise UserError("bleu_romanian needs sacremoses. Type: pip install 'tunescope[metrics]'") from None
    normal = MosesPunctNormalizer(lang="ro", pre_replace_unicode_punct=True, post_remove_control_chars=True)
    return normal, MosesTokenizer(lang="ro")
