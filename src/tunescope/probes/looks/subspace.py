"""In how many directions the bias really varies, against what the context's values span (Petrov et al. 2024)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.probes.seen import Layer, Seen, as_numbers, summary, with_context
from tunescope.report.finding import Finding, HeatMap


class Subspace(NamedTuple):
    """Directions of the bias, and of the values it is made of: each (heads,)."""

    rank: Tensor
    effective_rank: Tensor
    span: Tensor
    outside: Tensor


def subspace(bias: Tensor, values: Tensor, made_in: torch.dtype = torch.float64) -> Subspace:
    """Rank and effective rank of the bias over positions, and of what it could be.

    The bias is a positive combination of the context's values, so ``rank`` is at most ``span``, the rank of the values,
    and ``outside`` is zero: the largest entry of the bias that no combination of them gives. ``effective_rank`` is
    exp of the entropy of the singular values, each divided by their sum (Roy and Vetterli 2007, section 2): between 1
    and ``rank``, and 0 where the bias is. Ranks count singular values above 1e-10 of the largest, and above what
    rounding alone leaves: the epsilon of ``made_in`` times the root of the shorter side, twice what entries that are
    each off by half an epsilon come to. A low effective rank says that these texts use few directions, not that the
    context could use no more.

    Args:
        bias: (heads, positions, d), over all positions looked at.
        values: (heads, n_context, d), of the context.
        made_in: what the model computed the values in.
    """
    singular = torch.linalg.svdvals(bias)
    share = singular / singular.sum(-1, keepdim=True).clamp(min=torch.finfo(bias.dtype).tiny)
    entropy = torch.special.entr(share).sum(-1)
    outside = bias - bias @ torch.linalg.pinv(values) @ values
    return Subspace(
        rank=_rank(singular, made_in, bias),
        effective_rank=entropy.exp() * (share.sum(-1) > 0),
        span=_rank(torch.linalg.svdvals(values), made_in, values),
        outside=outside.abs().amax((-2, -1)),
    )


def look(seen: Seen) -> Finding:
    """Ranks by layer and head. A token context among an encoder's tokens has values of its own in every row: left out.

    Raises UserError where nothing stands before the text, or only such a context.
    """
    found = {name: _of(layer) for name, layer in with_context("subspace", seen).items() if layer.is_shared}
    if not found:
        raise UserError(
            f"Probe subspace: {seen.attached} stands among an encoder's tokens, and its values there differ by text. "
            "Type: tunescope probe prefix_bias."
        )
    n_heads = max(len(one.rank) for one in found.values())
    rows = [
        (name, int(one.span.max()), int(one.rank.max()), *summary(one.effective_rank)) for name, one in found.items()
    ]
    return Finding(
        heading="Directions that the bias uses",
        says="Effective rank: in how many directions the context's contribution to a head's output varies over these "
        "positions; the values of the context span as many as the second column says.",
        not_said="It counts directions, not their use for the task, and other texts may use others.",
        columns=("layer", "values span", "rank of bias", "effective, least head", "effective, mean", "effective, most"),
        rows=rows,
        pictures=[
            HeatMap(
                title="Effective rank of the bias",
                rows=list(found),
                columns=[f"head {head}" for head in range(n_heads)],
                values=as_numbers([one.effective_rank for one in found.values()]),
                low=0.0,
                high=float(max(one.span.max() for one in found.values())),
            )
        ],
        numbers={name: {key: value.tolist() for key, value in one._asdict().items()} for name, one in found.items()},
    )


def _rank(singular: Tensor, made_in: torch.dtype, matrix: Tensor) -> Tensor:
    least = max(1e-10, math.sqrt(min(matrix.shape[-2:])) * torch.finfo(made_in).eps)
    return (singular > least * singular[..., :1]).sum(-1)


def _of(layer: Layer) -> Subspace:
    return subspace(layer.at_real(layer.bias), layer.values[0, :, : layer.n_context], layer.made_in)
