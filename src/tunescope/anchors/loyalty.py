"""How far a model stays with what it said before: by its answers, and by the words it finds likeliest."""

from __future__ import annotations

from torch import Tensor


def label_loyalty(before: Tensor, after: Tensor) -> float:
    """The share of rows (rows,) whose predicted class is the same (Wang et al. 2023, section 2.2)."""
    return float((before == after).double().mean())


def word_loyalty(before: Tensor, after: Tensor, k: int = 5) -> float:
    """The mean Jaccard overlap of the k likeliest next tokens, from logits (rows, vocabulary)."""
    one, other = before.topk(k).indices, after.topk(k).indices
    shared = (one[:, :, None] == other[:, None, :]).any(-1).sum(-1).double()
    return float((shared / (2 * k - shared)).mean())
