"""BLEU-4 of Romanian as published for WMT16: of Moses' tokens without diacritics.

Punctuation is normalised, diacritics are dropped (Sennrich et al. 2016, arXiv:1606.02891, whose scripts everyone after
them ran): many texts of the training data spell the letters without marks or with the wrong ones, and so do models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tunescope.data.metric import Metric
from tunescope.data.metrics import bleu
from tunescope.data.metrics._sacre import counted
from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.data.metric import Floats

PLAIN = str.maketrans("ŞşȘșŢţȚțĂăÂâÎî", "SsSsTtTtAaAaIi")  # cedillas, then the commas that they stand for
COUNT = counted("BLEU", lambda lowercase: {"tokenize": "none", "force": True, "lowercase": lowercase})


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 10), as of `bleu`."""
    return COUNT(tokens(outputs), [tokens(own) for own in references], lowercase)


def score(sums: Floats, rows: Floats) -> Floats:
    """(n, 10) -> (n,) as `bleu`, but 0 where an order has no match, which `bleu` smooths."""
    return np.where(sums[:, 2:6].min(-1) > 0, bleu.score(sums, rows), 0.0)


def tokens(texts: Sequence[str]) -> list[str]:
    """Each text with spaces between its tokens."""
    normal, splitter = _moses()
    plain = (_quoted(normal.normalize(text)).translate(PLAIN) for text in texts)
    return [str(splitter.tokenize(text, escape=False, return_str=True)) for text in plain]


def _quoted(text: str) -> str:
    """Quotation marks before commas and full stops, as normalize-punctuation.perl has them and sacremoses has not."""
    return re.sub(r'(\.+)"(\s*[^<]|$)', r'"\1\2', text.replace(',"', '",'))


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


METRIC = Metric(
    compared="corpus BLEU-4 as in WMT16 into Romanian: no diacritics, Moses' tokens, {case}, no smoothing, 0 to 100",
    best=100.0,
    width=10,
    stats=stats,
    score=score,
    needs=check,
)
