"""Which classes a model will confuse, read from the keys of its label words, against which it does confuse."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

COMPONENTS = 10


def predicted_confusion(queries: Tensor, keys: Tensor, components: int = COMPONENTS) -> Tensor:
    """(classes, classes), from 0 (taken for one another) to 1 (told apart best), 1 on the diagonal.

    The distances between the label words' keys, each along the principal directions of the queries and stretched by
    their singular values, divided by the largest (Wang et al. 2023, section 4.3). Keys are not centred. It looks at one
    layer; that attention there decides is an assumption.

    Args:
        queries: (rows, d), of the position where the answer is read, all heads one after the other.
        keys: (classes, d), the mean key of each class's label words, likewise.
    """
    _, values, directions = torch.linalg.svd(queries - queries.mean(0), full_matrices=False)
    n = min(components, len(values))
    placed = keys @ directions[:n].T * values[:n]
    apart = torch.cdist(placed[None], placed[None], compute_mode="donot_use_mm_for_euclid_dist")[0]
    return (apart / apart.max()).fill_diagonal_(1.0)


def actual_confusion(logits: Tensor, gold: Tensor) -> Tensor:
    """(classes, classes): AUC-ROC of p_a / (p_a + p_b) on the rows of class a against those of b; 1 on the diagonal.

    NaN where a class has no rows.

    Args:
        logits: (rows, classes), of the classes' words; probabilities would all be 0 where others are far likelier.
        gold: (rows,), the true class.
    """
    n = logits.shape[1]
    found = torch.eye(n, dtype=torch.float64)
    for a, b in combinations(range(n), 2):
        ratio = logits[:, a].double() - logits[:, b].double()
        difference = ratio[gold == a][:, None] - ratio[gold == b][None, :]
        area = ((difference > 0).double() + 0.5 * (difference == 0).double()).mean()
        found[a, b] = found[b, a] = area
    return found


def rank_correlation(predicted: Tensor, actual: Tensor) -> float:
    """Spearman's over the pairs of classes; NaN with fewer than three pairs, or where one side does not vary."""
    from scipy.stats import spearmanr

    rows, columns = torch.triu_indices(len(predicted), len(predicted), 1)
    left, right = predicted[rows, columns].double(), actual[rows, columns].double()
    known = torch.isfinite(left) & torch.isfinite(right)
    left, right = left[known], right[known]
    if len(left) < 3 or float(left.std()) == 0 or float(right.std()) == 0:
        return float("nan")
    return float(spearmanr(left.numpy(), right.numpy()).statistic)
