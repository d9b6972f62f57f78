"""A document as each kind of model sees it: a decoder whole, an encoder-decoder in two, an encoder at one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.lab.worlds.documents import IGNORED

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Sight:
    """What a model is given, and the labels of its logits, IGNORED where nothing is learned."""

    inputs: dict[str, Tensor]
    labels: Tensor


@dataclass(frozen=True)
class Reader:
    """A kind of model with the ids that it needs.

    start: what an encoder-decoder's answers begin behind. first, mask: an encoder's.
    """

    kind: str
    start: int = 0
    first: int = 0
    mask: int = 0

    def sight(self, ids: Tensor, labels: Tensor, answer: int, draw: np.random.Generator | None) -> Sight:
        """Documents that close with an answer of so many ids, as they are learned.

        draw: what is left to chance is drawn from it. None is for a test: only the closing answer has labels, and an
        encoder gives it at the mask.
        """
        if self.kind == "decoder":
            kept = labels[:, 1:].clone()
            if draw is None:
                kept[:, :-answer] = IGNORED
            return Sight({"input_ids": ids[:, :-1]}, kept)
        source, target = ids[:, :-answer], ids[:, -answer:]
        if self.kind == "encoder-decoder":
            given = torch.cat([torch.full_like(target[:, :1], self.start), target[:, :-1]], -1)
            return Sight({"input_ids": source, "decoder_input_ids": given}, target)
        return self._encoded(source, labels[:, :-answer], target, draw)

    def _encoded(self, source: Tensor, answers: Tensor, target: Tensor, draw: np.random.Generator | None) -> Sight:
        """The word at a mask behind the text; in half of the batches there is none, and it is at the first token.

        In training half of the answers before it are masked too, and learned there.
        """
        column = torch.ones_like(source[:, :1])
        masked, hidden = True, torch.zeros_like(source, dtype=torch.bool)
        if draw is not None:
            masked = draw.random() < 0.5
            hidden = (answers != IGNORED) & torch.from_numpy(draw.random(source.shape) < 0.5)
        source, answers = source.masked_fill(hidden, self.mask), answers.masked_fill(~hidden, IGNORED)
        ids = torch.cat([self.first * column, source, *([self.mask * column] if masked else [])], -1)
        labels = torch.full_like(ids, IGNORED)
        labels[:, 1 : 1 + answers.shape[1]] = answers
        labels[:, -1 if masked else 0] = target[:, 0]
        return Sight({"input_ids": ids}, labels)


def sight_loss(model: PreTrainedModel, sight: Sight) -> Tensor:
    """The mean cross-entropy of the labels that are not ignored."""
    logits = model(**sight.inputs).logits
    return F.cross_entropy(logits.flatten(0, 1), sight.labels.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def whole_share(model: PreTrainedModel, sight: Sight) -> float:
    """The share of rows whose labels all have the highest logit, so that greedy decoding writes the whole answer."""
    right = model(**sight.inputs).logits.argmax(-1) == sight.labels
    return float((right | (sight.labels == IGNORED)).all(-1).double().mean())
