"""LoRA whose training began by taking a product out of the base weights, made one for the weights as they are.

PiSSA (Meng et al. 2024, arXiv:2404.02948) takes the largest singular directions, OLoRA (Büyükakyüz 2024,
arXiv:2406.01775) the first columns of Q and rows of R; peft does both again, in float32, whenever it loads the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.exchange.peft.config import CONFIG, CONVERT
from tunescope.models.quantised import is_quantised
from tunescope.models.sites import is_transposed


def without_start(
    config: Mapping[str, Any], module: nn.Module, scale: float, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """Factors of B A - B0 A0, which is to be added to the weight as it is, at the same scale.

    a: (rank, in). b: (out, rank). Both come out of twice the rank.

    Raises UserError for a quantised weight, which was another then, and for OLoRA of GPT-2's maps, where peft's own
    factors do not fit.
    """
    start, weight, rank = config["init_lora_weights"], module.get_parameter("weight"), len(a)
    if is_quantised(weight) or (start == "olora" and is_transposed(module)):
        what = "quantised" if is_quantised(weight) else "stored transposed, where peft takes another product"
        raise UserError(f"{CONFIG}: init_lora_weights={start!r}, and the weights here are {what}. {CONVERT}")
    whole = (weight.T if is_transposed(module) else weight).detach().float()
    if start == "pissa":
        left, values, right = torch.linalg.svd(whole, full_matrices=False)
        root = (values[:rank] / scale).sqrt()
        first, second = root[:, None] * right[:rank], left[:, :rank] * root
    else:
        q, r = torch.linalg.qr(whole)
        first, second = r[:rank], q[:, :rank]
    return torch.cat([a, first.to(a)]), torch.cat([b, -second.to(b)], 1)
