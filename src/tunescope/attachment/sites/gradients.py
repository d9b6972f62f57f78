"""What depends on what in a pass, asked of gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def gradients(of: Tensor, by: Sequence[Tensor], *, again: bool = False) -> list[Tensor | None]:
    """Of a random mixture of `of` by each tensor; None where it does not depend on it. again: to be differentiated."""
    return [None if one is None or not one.any() else one for one in _gradients(of, by, again)]


def is_linked(of: Tensor, by: Sequence[Tensor]) -> list[bool]:
    """Whether a way leads to it from each tensor, be it by weights that are zero now."""
    return [one is not None for one in _gradients(of, by, False)]


def _gradients(of: Tensor, by: Sequence[Tensor], again: bool) -> list[Tensor | None]:
    asked = [one for one in by if one.requires_grad]
    if not of.requires_grad or not asked:
        return [None] * len(by)
    draw = torch.Generator().manual_seed(0)
    weights = torch.randn(of.shape, generator=draw).to(of)
    found = iter(torch.autograd.grad(of, asked, weights, retain_graph=True, allow_unused=True, create_graph=again))
    return [next(found) if one.requires_grad else None for one in by]


def columns(gradient: Tensor) -> Tensor:
    """Of the last axis, which are not zero everywhere."""
    found: Tensor = gradient.reshape(-1, gradient.shape[-1]).any(0)
    return found
