"""sacrebleu's own counts, row by row: the n-grams of all references at once would fill the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tunescope.data.metric import Floats


def counted(
    name: str, settings: Callable[[bool], dict[str, Any]]
) -> Callable[[Sequence[str], Sequence[Sequence[str]], bool], Floats]:
    """The statistics of sacrebleu's metric `name`, made with the settings for this `lowercase`."""

    def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
        import sacrebleu.metrics

        scorer = getattr(sacrebleu.metrics, name)(**settings(lowercase))
        rows = [
            scorer._extract_corpus_statistics([output], [[one] for one in own])[0]
            for output, own in zip(outputs, references, strict=True)
        ]
        return np.asarray(rows, dtype=np.float64)

    return stats
