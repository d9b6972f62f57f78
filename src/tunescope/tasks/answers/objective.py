"""What is minimised at each token of a target: its cross-entropy, and what some papers add to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Objective:
    """Cross-entropy with two additions, neither of them by default.

    label_smoothing: the target's share is 1 - e, and e is spread evenly over the vocabulary (Szegedy et al. 2016,
        arXiv:1512.00567, section 7).
    z_loss: times the square of the logarithm of the softmax's sum, as T5X adds it (Lester et al. 2021 have 1e-4).
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(tokens,), of logits (tokens, vocabulary) and the targets' ids (tokens,)."""
        losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.label_smoothing)
        return losses + self.z_loss * torch.logsumexp(logits, -1) ** 2 if self.z_loss else losses

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Scalar: the mean over the tokens."""
        losses = F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)
        return losses + self.z_loss * (torch.logsumexp(logits, -1) ** 2).mean() if self.z_loss else losses


PLAIN = Objective()
