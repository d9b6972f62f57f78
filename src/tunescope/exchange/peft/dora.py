"""DoRA (Liu et al. 2024, arXiv:2402.09353, section 4.1) as peft stores it, made a LoRA with a gain, and back.

peft: m (W + s B A) x / ||W + s B A|| + bias, a norm for each row, m stored. Trained, the norm is a number: with
g = m / norm this is g (W x + bias) + (1 - g) bias + s (g B) A x, a LoRA with `gain`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.exchange.peft.config import TENSORS
from tunescope.exchange.peft.patches import Patches, oriented
from tunescope.methods.artifact import Params

OWN = "keep tunescope's own folder (tunescope.save), or merge it (tunescope.merge) and save the model"


def rows_of(patches: Patches, module: nn.Module, path: str, magnitude: Tensor, change: Tensor) -> Params:
    """gain and, where the map has a bias, shift, (out,) each, of a map with that magnitude and that change s B A.

    Raises UserError for another number of magnitudes than rows, and for a row of norm 0, which peft divides by too.
    """
    weight = oriented(module, patches.base(path, "weight"))
    norm = torch.linalg.norm(weight + change.to(weight), dim=1)
    if magnitude.shape != norm.shape or not bool(norm.all()):
        raise UserError(
            f"{TENSORS}: {path!r} has another number of magnitudes than rows, {len(norm)}, or a row of zeros: the file "
            "was altered, or made for another model."
        )
    gain, bias = magnitude.to(norm) / norm, patches.bias(path)
    rows = {"gain": gain} if bias is None else {"gain": gain, "shift": (1 - gain) * bias}
    return {name: value.to(magnitude.device) for name, value in rows.items()}  # where the factors are


def magnitude(module: nn.Module, a: Tensor, b: Tensor, rows: Params, name: str) -> tuple[Tensor, Tensor]:
    """peft's B and magnitude of a whole map that has the factors a and b, the scale in b, and gain and shift, or none.

    Raises UserError where its shift is not the one that DoRA has, and for a gain of 0.
    """
    weight = oriented(module, module.get_parameter("weight").detach()).to(b)
    gain = rows.get("gain", torch.ones_like(weight[:, 0])).to(b)
    shift = rows.get("shift", torch.zeros_like(gain)).to(b)
    bias: Tensor | None = getattr(module, "bias", None)
    usual = torch.zeros_like(gain) if bias is None else (1 - gain) * bias.detach().to(b)
    if not bool(gain.all()) or not torch.allclose(shift, usual, rtol=1e-5, atol=1e-6):
        raise UserError(f"LoRA's gain or shift at {name!r} is none that DoRA has over the base's own bias: {OWN}.")
    b = b / gain[:, None]
    return b, gain * torch.linalg.norm(weight + b @ a, dim=1)
