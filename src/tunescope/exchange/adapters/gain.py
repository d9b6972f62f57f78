"""What the `adapters` library multiplies a map's output by, read into a LoRA with a gain.

- (IA)^3 (Liu et al. 2022, arXiv:2205.05638, section 3.3): alpha * l * h, bias and all. In GPT-2's fused map the vectors
  of the chosen parts stand one after the other. Both factors are 0, so tuned further the gain alone is.
- DoRA (Liu et al. 2024, arXiv:2402.09353): that library computes g (W x + bias + alpha / r B A x) with
  g = m / ||W + B A||, the norm without the scale. Trained, g is a number for each row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.exchange.adapters.config import TENSORS
from tunescope.methods.artifact import Params
from tunescope.models.sites import Site, is_transposed

LENGTH = r"(.+)\.loras\.{}\.m\.weight"


def is_ia3(config: Mapping[str, Any]) -> bool:
    return bool(config.get("composition_mode", "add") == "scale")


def lengths(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str
) -> tuple[dict[str, Tensor] | None, Mapping[str, Tensor]]:
    """DoRA's m by map, (out,), None where the file is none of DoRA; and the other tensors."""
    if not config.get("use_dora"):
        return None, tensors
    found, rest = {}, {}
    for key, value in tensors.items():
        match = re.fullmatch(LENGTH.format(re.escape(name)), key)
        if match is None:
            rest[key] = value
        else:
            found[match[1]] = value.flatten()
    return found, rest


def rows(site: Site, length: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gain of a whole map, (out,), from DoRA's m and factors, and B with the gain in it.

    Raises UserError for another number of lengths than rows, and for a row of zeros.
    """
    module = site.h.module
    weight = module.get_parameter("weight").detach()
    weight = (weight.T if is_transposed(module) else weight).to(torch.promote_types(weight.dtype, torch.float32))
    norm = torch.linalg.norm(weight + (b @ a).to(weight), dim=1)
    if length.shape != norm.shape or not bool(norm.all()):
        raise UserError(
            f"{TENSORS}: DoRA at {site.name!r} has {len(length)} lengths and should have {len(norm)}, of rows that are "
            "not 0: the file was altered, or made for another model."
        )
    gain = length.to(norm) / norm
    return gain, gain.to(b)[:, None] * b


def rows_at(site: Site, gain: Tensor) -> Params:
    """A gain at a site, and no shift."""
    shift = {f"{site.name}:shift": torch.zeros_like(gain)} if site.shape("x").has_bias else {}
    return {f"{site.name}:gain": gain, **shift}
