"""BLEU-4 of the WebNLG challenge's script: small letters without marks, split at every sign, three references."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunescope.data.metric import Metric
from tunescope.data.metrics import bleu_romanian
from tunescope.data.metrics._sacre import counted

if TYPE_CHECKING:
    from tunescope.data.metric import Floats

REFERENCES = 3
PLAIN = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ı": "i", "ə": "@", "ß": "ss", "æ": "ae", "œ": "oe", "–": "-", "’": "'", "‘": "'"}
)
COUNT = counted("BLEU", lambda lowercase: {"tokenize": "none", "force": True})


def tokens(text: str) -> str:
    """The text with spaces between its tokens: runs of letters, digits and "_", and single signs.

    The script has all of Unicode in ASCII, by unidecode; here marks go, and the letters and signs of `PLAIN`.
    """
    split = unicodedata.normalize("NFKD", text.lower().translate(PLAIN))
    plain = "".join(one for one in split if not unicodedata.combining(one))
    return " ".join(" ".join(re.split(r"(\W)", plain)).split())


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 10), as of `bleu`. An output with fewer references has empty ones, as in the script's files."""
    first = [[*own[:REFERENCES], *[""] * (REFERENCES - len(own))] for own in references]
    return COUNT(list(map(tokens, outputs)), [list(map(tokens, own)) for own in first], False)


METRIC = Metric(
    compared="corpus BLEU-4 as in the WebNLG challenge's script (multi-bleu.perl -lc): case and marks ignored, split "
    "at every sign, the first three references, no smoothing, 0 to 100",
    best=100.0,
    width=10,
    stats=stats,
    score=bleu_romanian.score,
)
