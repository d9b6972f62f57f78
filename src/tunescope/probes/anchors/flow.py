"""Where information flows in a prompt with demonstrations: into label words, from them to the answer, or elsewhere."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Flow(NamedTuple):
    """Mean saliency of three sets of pairs, each (batch,).

    wp: from every earlier token into the label words. pq: from the label words to where the answer is read.
    ww: of all other pairs.
    """

    wp: Tensor
    pq: Tensor
    ww: Tensor

    @property
    def shares(self) -> Tensor:
        """(3, batch), the three divided by their sum."""
        stacked = torch.stack(tuple(self))
        return stacked / stacked.sum(0)


def flow(saliency: Tensor, labels: Tensor, query: int, real: Tensor, *, both_ways: bool = False) -> Flow:
    """S_wp, S_pq and S_ww of one layer (Wang et al. 2023, section 2.1).

    A pair (i, j) has j < i, both real. S_wp is the mean over i in the label words, S_pq over i = query and j in the
    label words, S_ww over the rest with i <= query. A label word of several tokens counts as each of them. Saliency
    says how much the loss would move with a weight of attention, not what the weight carries.

    both_ways: for an encoder-decoder, whose encoder reads both ways: a pair then has j != i and j != query, where
    `query` stands for the decoder's place.

    Args:
        saliency: (batch, query, key), |sum over heads of attention times gradient|.
        labels: (batch, key), True at tokens of label words.
        query: the column where the answer is read.
        real: (batch, key), False at padding.
    """
    n = saliency.shape[-1]
    at = torch.arange(n, device=saliency.device)
    earlier = (at[None, :] < at[:, None]) & (at <= query)[:, None]
    if both_ways:
        earlier = (at[None, :] != at[:, None]) & (at != query)[None, :]
    pairs = earlier & real[:, None, :] & real[:, :, None]
    into = pairs & labels[:, :, None]
    out = pairs & labels[:, None, :] & (at == query)[:, None]
    rest = pairs & ~into & ~out
    return Flow(*(_mean(saliency, chosen) for chosen in (into, out, rest)))


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    """(batch,), over the pairs chosen; NaN where there are none."""
    return (values * chosen).sum((-1, -2)) / chosen.sum((-1, -2))
