"""METEOR 1.5 for English (Denkowski & Lavie 2014), aligned by its own Java program as in COCO's caption metrics.

Java gives each row's counts of the alignment with the reference that fits best; the corpus score is a function of
their sums, which is computed here, so that it has intervals like any other. Slow: Java loads its tables of synonyms
and paraphrases every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tunescope.data.metric import Metric
from tunescope.data.metrics import _coco
from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.data.metric import Floats

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
STAGES = np.array([1.0, 0.6, 0.8, 0.6])  # weights of exact, stem, synonym and paraphrase matches
WIDTH = 23
JAR = ("meteor", "meteor-1.5.jar")


def stats(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Floats:
    """(rows, 23), as the program writes them.

    Words, and function words among them, of output and reference in turn; for each stage the content words that match,
    then the function words, each of output and reference; chunks; words that match, of both. Of a row whose words all
    match in one piece it adds no chunk to a set's sum, so there are none here.
    """
    written, others = _coco.prepared(outputs, references)
    parts = [["SCORE", *own, output] for output, own in zip(written, others, strict=True)]
    path = _coco.jar(*JAR)
    found = _coco.java(
        "METEOR",
        ["-jar", path.name, "-", "-", "-stdio", "-l", "en", "-norm"],
        [" ||| ".join(one.replace("|||", " ") for one in row) for row in parts],
        path.parent,
    )
    rows = [[float(number) for number in line.split()] for line in found]
    if len(rows) != len(outputs) or any(len(row) != WIDTH for row in rows):
        raise UserError(f"METEOR gave {len(rows)} lines for {len(outputs)} outputs; update Java.")
    made = np.asarray(rows, dtype=np.float64).reshape(-1, WIDTH)
    made[(made[:, 21:23] == made[:, 0:2]).all(-1) & (made[:, 20] == 1), 20] = 0
    return made


def score(sums: Floats, rows: Floats) -> Floats:
    """(n, 23) -> (n,), in percent (section 2 of the paper)."""
    words, function = sums[:, 0:2], sums[:, 2:4]
    matched = sums[:, 4:20].reshape(-1, 4, 2, 2)  # stage, content or function, output or reference
    weighed = np.einsum("nskt,s,k->nt", matched, STAGES, [DELTA, 1 - DELTA])
    total = DELTA * (words - function) + (1 - DELTA) * function
    precision, recall = (weighed / np.where(total > 0, total, 1)).T
    below = ALPHA * precision + (1 - ALPHA) * recall
    f = precision * recall / np.where(below > 0, below, 1)
    chunks, matches = sums[:, 20], sums[:, 21:23]
    broken = chunks / np.maximum(matches.mean(-1), 1)
    return np.asarray(100 * f * (1 - GAMMA * broken**BETA))


METRIC = Metric(
    compared="METEOR 1.5 for English as in COCO's caption metrics (E2E): PTB tokens without punctuation, case ignored, "
    "stems, synonyms and paraphrases match too, from summed counts, 0 to 100",
    best=100.0,
    width=WIDTH,
    stats=stats,
    score=score,
    needs=_coco.check,
)
