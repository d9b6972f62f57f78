"""Bottleneck adapters: sequential (Houlsby et al. 2019), parallel and multi-head (He et al. 2022, arXiv:2110.04366)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.artifact import Params, SiteDelta, SiteShape
from tunescope.errors import UserError


@dataclass(frozen=True)
class Adapter(SiteDelta):
    """h + scale * up(ReLU(down(source))), biases in both maps.

    placement: "sequential" reads h itself, "parallel" the site's input x, "multi-head" the layer's query (what the
    query map gives, before any rotation), head by head and without biases: ReLU(q_i P_k,i) P_v,i, for "attn.heads".
    sites: "ffn", "attn" (after the output projection), "attn.heads" (before it).
    scale: a number, or "learned" (one scalar a site, from 1).
    norm: "in" (a layer norm in front), "out" (on what is added) or "none".
    start: "lora" (down uniform, up zero: a fresh adapter changes nothing) or "bert" (both normal, .02).
    """

    size: ClassVar[str] = "bottleneck"
    learning_rates: ClassVar[tuple[float, float, float]] = (3e-4, 2e-3, 1e-2)

    bottleneck: int = 16
    placement: Literal["sequential", "parallel", "multi-head"] = "sequential"
    sites: tuple[str, ...] = ("ffn",)
    scale: float | Literal["learned"] = 1.0
    norm: Literal["none", "in", "out"] = "none"
    start: Literal["lora", "bert"] = "lora"

    @property
    def reads(self) -> str:
        return "query" if self.placement == "multi-head" else "input"

    @property
    def fresh_is_identity(self) -> bool:
        return self.start == "lora"

    def init(self, shape: SiteShape) -> Params:
        if self.bottleneck < 1:
            raise UserError(f"Adapter(bottleneck={self.bottleneck}): a bottleneck is at least 1 wide.")
        if self.placement == "multi-head" and shape.d_in != shape.d_out:
            raise UserError("Adapter(placement='multi-head') acts on the heads: give it sites=attn.heads.")
        d_in = shape.d_in if self.placement == "parallel" else shape.d_out
        heads = (shape.n_heads,) if self.placement == "multi-head" else ()
        d_in, d_out = (d // shape.n_heads if heads else d for d in (d_in, shape.d_out))
        p = {
            "down": self._down(*heads, self.bottleneck, d_in),
            "up": self._up(*heads, d_out, self.bottleneck),
        }
        if not heads:
            p |= {"down_bias": torch.zeros(self.bottleneck), "up_bias": torch.zeros(d_out)}
        if self.norm != "none":
            width = (d_in if self.norm == "in" else d_out) * (shape.n_heads if heads else 1)
            p |= {"norm": torch.ones(width), "norm_bias": torch.zeros(width)}
        if self.scale == "learned":
            p["scale"] = torch.ones(())
        return p

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        source = h if self.placement == "sequential" else x
        if self.norm == "in":
            source = F.layer_norm(source, p["norm"].shape, p["norm"], p["norm_bias"])
        added = _per_head(p, source) if self.placement == "multi-head" else _bottleneck(p, source)
        added = added * (p["scale"] if self.scale == "learned" else self.scale)
        if self.norm == "out":
            added = F.layer_norm(added, p["norm"].shape, p["norm"], p["norm_bias"])
        return h + added

    def _down(self, *shape: int) -> Tensor:
        if self.start == "bert":
            return 0.02 * torch.randn(shape)
        return (2 * torch.rand(shape) - 1) / math.sqrt(shape[-1])

    def _up(self, *shape: int) -> Tensor:
        return 0.02 * torch.randn(shape) if self.start == "bert" else torch.zeros(shape)


def _bottleneck(p: Params, source: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(source, p["down"], p["down_bias"])), p["up"], p["up_bias"])


def _per_head(p: Params, query: Tensor) -> Tensor:
    heads, _, width = p["down"].shape
    split = query.reshape(*query.shape[:-1], heads, width)
    hidden = F.relu(torch.einsum("...hd,hrd->...hr", split, p["down"]))
    return torch.einsum("...hr,hdr->...hd", hidden, p["up"]).flatten(-2)
