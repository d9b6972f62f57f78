"""The allowed embedding that is nearest to each row: the projection that searches in the continuous share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor
from torch.nn.functional import normalize

By = Literal["cosine", "euclidean"]
Nearest = Callable[[Tensor], Tensor]


def nearest(table: Tensor, by: By) -> Nearest:
    """rows (n, width) -> (n,), the index of the nearest row of the table; the first of equals.

    cosine: the largest cosine, as Wen et al. (2023) have it; the length of a row plays no part. euclidean: the least
    distance. What depends on the table alone is made once, here.
    """
    if by == "cosine":
        directions = normalize(table, dim=-1).T.contiguous()  # a fifth quicker than a view

        def by_angle(rows: Tensor) -> Tensor:
            return (rows @ directions).argmax(-1)  # the row's own length scales all its cosines alike

        return by_angle
    half = table.square().sum(-1) / 2
    columns = table.T.contiguous()

    def by_distance(rows: Tensor) -> Tensor:
        return (rows @ columns - half).argmax(-1)  # |r - t|^2 / 2 is |r|^2 / 2 less this

    return by_distance
