"""LoRA, a low-rank update of a linear map (Hu et al. 2021, arXiv:2106.09685, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import ALL_LINEAR, Counted, Params, SiteDelta, SiteShape
from tunescope.methods.form import Form

CITATION = """\
@inproceedings{hu2022lora,
  author = {Hu, Edward J. and Shen, Yelong and Wallis, Phillip and Allen-Zhu, Zeyuan and Li, Yuanzhi
    and Wang, Shean and Wang, Lu and Chen, Weizhu},
  title = {{LoRA}: Low-Rank Adaptation of Large Language Models},
  booktitle = {ICLR},
  year = {2022},
  eprint = {2106.09685},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class LoRA(SiteDelta):
    """h + (alpha / rank) B A x, with dropout on x while training. B starts at zero, so a fresh LoRA changes nothing.

    rank: of the update. alpha: None means equal to the rank, so that the scale stays 1 whatever rank a budget gives.
    dropout: share of x that is zeroed while training. sites: the linear maps that are changed. At all-linear a map
    narrower than the rank, a gate say, gets as much of it as it has.
    gain: gain * h + shift takes the place of h, a number each for every row of the map, from 1 and 0; a linear map
    without a bias has no shift. A DoRA that is trained (Liu et al. 2024, arXiv:2402.09353) is this: gain its magnitude
    over the norm of the changed row, b its own times gain, row by row, and shift (1 - gain) times the map's bias.
    Trained here, they follow no norm.

    Tensors, for every site, such as decoder.0.self.q: "decoder.0.self.q:a" (rank, d_in) and "decoder.0.self.q:b"
    (d_out, rank); with gain ":gain" and, where there is one, ":shift" (d_out,).

    Raises UserError, once it meets a model, for a rank that the map does not take, for a dropout that is no share, and
    for an alpha of 0 without a gain, which could learn nothing.

    Source: Hu et al. 2021, arXiv:2106.09685, section 4.1.
    """

    size: ClassVar[str] = "rank"
    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 5e-3, 2e-2)
    served_as: ClassVar[str] = "merged"

    rank: int = 8
    alpha: float | None = None
    dropout: float = 0.0
    sites: tuple[str, ...] = ("attn.q", "attn.v")
    gain: bool = False

    @property
    def scale(self) -> float:
        return 1.0 if self.alpha is None else self.alpha / self.rank

    def init(self, shape: SiteShape) -> Params:
        if not 0 <= self.dropout < 1:
            raise UserError(f"LoRA(dropout={self.dropout:g}): a share is at least 0 and below 1, as in dropout=0.1.")
        if self.alpha == 0 and not self.gain:
            raise UserError("LoRA(alpha=0) multiplies its change by 0 and can learn nothing. Leave alpha out.")
        most = min(shape.d_in, shape.d_out)
        rank = min(self.rank, most) if ALL_LINEAR in self.sites else self.rank
        if not 1 <= rank <= most:
            raise UserError(f"LoRA(rank={self.rank}): a {shape.d_in} -> {shape.d_out} map takes a rank in [1, {most}].")
        a = (2 * torch.rand(rank, shape.d_in) - 1) / shape.d_in**0.5  # kaiming uniform with a = sqrt 5
        rows = {"gain": torch.ones(shape.d_out)} if self.gain else {}
        rows |= {"shift": torch.zeros(shape.d_out)} if self.gain and shape.has_bias else {}
        return {"a": a, "b": torch.zeros(shape.d_out, rank), **rows}

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        if self.dropout:
            x = F.dropout(x, self.dropout)
        h = h * p["gain"] if self.gain else h
        h = h + p["shift"] if "shift" in p else h
        return h + F.linear(self.scale * F.linear(x, p["a"]), p["b"])

    def apply_by_row(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        if self.dropout:
            x = F.dropout(x, self.dropout)
        h = h * p["gain"][:, None] if self.gain else h
        h = h + p["shift"][:, None] if "shift" in p else h
        low = x @ p["a"].mT
        if torch.is_autocast_enabled(x.device.type) or h.dtype != low.dtype:
            return h + (self.scale * low) @ p["b"].mT
        return torch.baddbmm(h, low, p["b"].mT, alpha=self.scale)

    @property
    def counted(self) -> Counted | None:
        return None if self.gain else Counted("lora", self.rank, self.sites)

    @property
    def formula(self) -> Form:
        scaled = "change" if self.scale == 1 else f"{self.scale} * change"
        own = "gain * h + shift" if self.gain else "h"
        return Form("x @ a.T @ b.T", "parallel", ", ".join(self.sites), f"{own} + {scaled}")

    def padded(self, p: Params, size: int) -> tuple[SiteDelta, Params]:
        more = size - len(p["a"])
        tensors = {"a": F.pad(p["a"], (0, 0, 0, more)), "b": F.pad(self.scale * p["b"], (0, more))}
        return replace(self, rank=size, alpha=None), {**p, **tensors}

    def weight_change(self, p: Params) -> Tensor:
        return self.scale * (p["b"] @ p["a"])

    def row_change(self, p: Params) -> tuple[Tensor, Tensor] | None:
        return (p["gain"], p.get("shift", torch.zeros_like(p["gain"]))) if self.gain else None
