"""Metrics as functions of summed statistics, so that a bootstrap resample costs one matrix product.

``stats`` of one row, by metric: accuracy (correct, label, predicted); exact_match (correct,);
bleu (hypothesis length, reference length, 4 n-gram matches, 4 n-gram totals), as sacrebleu counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tunescope.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

WIDTHS = {"accuracy": 3, "exact_match": 1, "bleu": 10}
SCALES = {"accuracy": 1.0, "exact_match": 1.0, "bleu": 100.0}  # the best value; the worst is 0 for all


def aggregate(metric: str, stats: ArrayLike) -> dict[str, float]:
    """The metric over all rows first, then its companions (balanced accuracy and macro F1 for accuracy).

    Raises:
        UserError: an unknown metric, or no rows.
    """
    table = _table(metric, stats)
    values = {metric: float(aggregate_many(metric, table, np.ones((1, len(table))))[0])}
    return {**values, **_per_class(table)} if metric == "accuracy" else values


def aggregate_many(metric: str, stats: ArrayLike, weights: ArrayLike) -> Floats:
    """(n_resamples,) values of the metric, each row counted as often as its weight says.

    Args:
        stats: (n_rows, width of the metric's statistics).
        weights: (n_resamples, n_rows), not all zero in a resample.
    """
    table, times = _table(metric, stats), np.asarray(weights, dtype=np.float64)
    if metric == "bleu":
        return _bleu(times @ table)
    return np.asarray(times @ table[:, 0] / times.sum(-1))


def bleu_stats(hypothesis: str, references: Sequence[str], *, lowercase: bool = False) -> tuple[float, ...]:
    """sacrebleu's counts for one row with any number of references, tokenised by 13a."""
    from sacrebleu.metrics import BLEU

    scorer: Any = BLEU(lowercase=lowercase, tokenize="13a")
    score = scorer.corpus_score([hypothesis], [[reference] for reference in references])
    return tuple(map(float, (score.sys_len, score.ref_len, *score.counts, *score.totals)))


def exact_match_stats(hypothesis: str, references: Sequence[str], *, lowercase: bool = False) -> tuple[float, ...]:
    """(1,) if the hypothesis is one of the references, runs of white space counted as one space."""

    def normal(text: str) -> str:
        return " ".join((text.lower() if lowercase else text).split())

    return (float(normal(hypothesis) in {normal(reference) for reference in references}),)


def _table(metric: str, stats: ArrayLike) -> Floats:
    if metric not in WIDTHS:
        raise UserError(f"Unknown metric '{metric}'. Allowed: {', '.join(WIDTHS)}.")
    table = np.asarray(stats, dtype=np.float64)
    if table.ndim != 2 or not len(table) or table.shape[1] != WIDTHS[metric]:
        raise UserError(f"{metric} needs at least one row of {WIDTHS[metric]} statistics, not shape {table.shape}.")
    return table


def _bleu(sums: Floats) -> Floats:
    """(n, 10) -> (n,) corpus BLEU-4 in percent, with sacrebleu's default "exp" smoothing.

    Smoothing: the k-th order without a match counts as 1 / 2^k of a match. An order without any n-gram ends
    the sum at 0, and so does a corpus without any match.
    """
    lengths, matches, totals = sums[:, :2], sums[:, 2:6], sums[:, 6:]
    missing = matches == 0
    precision = np.where(missing, 0.5 ** missing.cumsum(-1), matches) / np.where(totals > 0, totals, 1)
    scored = (totals > 0).all(-1) & (matches > 0).any(-1)
    hypothesis, reference = lengths.T
    penalty = np.exp(np.minimum(0, 1 - reference / np.where(hypothesis > 0, hypothesis, 1)))
    return np.where(scored, 100 * penalty * np.exp(np.log(precision).mean(-1)), 0.0)


def _per_class(table: Floats) -> dict[str, float]:
    """Balanced accuracy: mean recall over the labels that occur. Macro F1: over those and the predicted."""
    _, labels, predicted = table.T
    recalls, scores = [], []
    for one in np.union1d(labels, predicted):
        both = float(((labels == one) & (predicted == one)).sum())
        of_label, of_predicted = float((labels == one).sum()), float((predicted == one).sum())
        scores.append(2 * both / (of_label + of_predicted))
        if of_label:
            recalls.append(both / of_label)
    return {"balanced_accuracy": float(np.mean(recalls)), "macro_f1": float(np.mean(scores))}
