"""Translation edit rate (Snover et al. 2006): edits and shifts for each word of a reference, as sacrebleu counts them.

Lower is better, so it is told beside others and decides nothing. Slow: the search for shifts takes some milliseconds
for every pair of different texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tunescope.data.metric import Metric

if TYPE_CHECKING:
    from tunescope.data.metric import Floats


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 2): fewest edits to any reference, mean length of the references."""
    from sacrebleu.metrics import TER

    words: Any = TER(case_sensitive=not lowercase)._preprocess_segment
    rows = [
        _edits(words(output).split(), [words(one).split() for one in own])
        for output, own in zip(outputs, references, strict=True)
    ]
    return np.asarray(rows, dtype=np.float64)


def _edits(output: list[str], references: list[list[str]]) -> tuple[float, float]:
    """References are tried in the order of what their edits are at least: all words that have no partner."""
    from sacrebleu.metrics.lib_ter import translation_edit_rate

    own = Counter(output)

    def at_least(reference: list[str]) -> int:
        return max(len(output), len(reference)) - (own & Counter(reference)).total()

    fewest = np.inf
    for reference in sorted(references, key=at_least):
        if at_least(reference) >= fewest:
            break
        fewest = min(fewest, translation_edit_rate(output, reference)[0])
    return float(fewest), sum(map(len, references)) / len(references)


def score(sums: Floats, rows: Floats) -> Floats:
    edits, length = sums.T
    return np.asarray(np.where(length > 0, 100 * edits / np.where(length > 0, length, 1), 100.0 * (edits > 0)))


METRIC = Metric(
    compared="TER as in sacrebleu: words at white space, {case}, 0 is perfect and nothing bounds it above",
    best=100.0,
    width=2,
    stats=stats,
    score=score,
    is_bounded=False,
    higher_is_better=False,
)
