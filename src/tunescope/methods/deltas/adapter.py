"""Bottleneck adapters: sequential (Houlsby et al. 2019), parallel and multi-head (He et al. 2022, arXiv:2110.04366)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Counted, Params, SiteDelta, SiteShape
from tunescope.methods.form import Form

CITATION = """\
@inproceedings{houlsby2019parameter,
  author = {Houlsby, Neil and Giurgiu, Andrei and Jastrzebski, Stanislaw and Morrone, Bruna
    and de Laroussilhe, Quentin and Gesmundo, Andrea and Attariyan, Mona and Gelly, Sylvain},
  title = {Parameter-Efficient Transfer Learning for {NLP}},
  booktitle = {ICML},
  year = {2019},
  eprint = {1902.00751},
  archivePrefix = {arXiv},
}

@inproceedings{he2022unified,
  author = {He, Junxian and Zhou, Chunting and Ma, Xuezhe and Berg-Kirkpatrick, Taylor and Neubig, Graham},
  title = {Towards a Unified View of Parameter-Efficient Transfer Learning},
  booktitle = {ICLR},
  year = {2022},
  eprint = {2110.04366},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class Adapter(SiteDelta):
    """h + scale * up(ReLU(down(source))), biases in both maps.

    placement: "sequential" reads h itself, "parallel" the site's input x, "multi-head" the layer's query (what the
    query map gives, before any rotation), head by head and without biases: ReLU(q_i P_k,i) P_v,i, for "attn.heads".
    sites: "ffn", "attn" (after the output projection), "attn.heads" (before it). He et al.'s sequential SA(attn) is at
    "attn" and their parallel PA(attn) at "attn.heads", as their code has it; their figure does not tell the two apart.
    Where a layer norms its input first, x is what the norm gives.
    source: "block", as above; or "stream", the residual stream: behind the block's residual connection, and behind the
    model's norm where that stands there (sequential; Pfeiffer et al. 2020, arXiv:2005.00247), or as the connection
    adds it, before any norm (parallel). It is of whole blocks, in families that add them one after the other.
    scale: a number, or "learned" (one scalar a site, from 1). A scale that depends on the input as a prefix's does,
    the part of the attention that it takes, needs the attention over the text and is no option here: it is `prefix`.
    activation: "relu", "silu", "gelu", or "softmax" over the bottleneck. With placement="multi-head" the last is a
    prefix without its gate, P_k and P_v its keys (1 / sqrt(d) in them) and values, in families without rotation of
    queries.
    norm: "in" (a layer norm in front), "out" (on what is added) or "none". "out" comes behind the scale, as in He et
    al.'s code, and takes it away again as far as what is added is large beside the norm's eps, 1e-5: of a young adapter
    more of the scale is left.
    start: "lora" (down uniform, up zero: a fresh adapter changes nothing) or "bert" (both normal, .02).

    Tensors, for every site, such as decoder.0.ffn: "decoder.0.ffn:down" (bottleneck, d_in), ":up" (d_out, bottleneck),
    ":down_bias" (bottleneck,), ":up_bias" (d_out,); with a norm ":norm" and ":norm_bias", with a learned scale ":scale"
    (). Multi-head: "decoder.0.self.heads:down" (heads, bottleneck, d), ":up" (heads, d, bottleneck), no biases.

    Raises UserError, once it meets a model, for a bottleneck below 1, for a scale of 0 but before a norm, and for a
    placement whose sites or source are not its own.

    Source: Houlsby et al. 2019, arXiv:1902.00751, section 2.1; He et al. 2022, arXiv:2110.04366, section 3.3.
    """

    size: ClassVar[str] = "bottleneck"
    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 5e-3, 2e-2)

    bottleneck: int = 16
    placement: Literal["sequential", "parallel", "multi-head"] = "sequential"
    sites: tuple[str, ...] = ("ffn",)
    scale: float | Literal["learned"] = 1.0
    activation: Literal["relu", "silu", "gelu", "softmax"] = "relu"
    norm: Literal["none", "in", "out"] = "none"
    start: Literal["lora", "bert"] = "lora"
    source: Literal["block", "stream"] = "block"

    @property
    def reads(self) -> str:
        if self.source == "stream":
            return "stream behind" if self.placement == "sequential" else "stream"
        return "query" if self.placement == "multi-head" else "input"

    @property
    def fresh_is_identity(self) -> bool:
        return self.start == "lora"

    def init(self, shape: SiteShape) -> Params:
        if self.bottleneck < 1:
            raise UserError(f"Adapter(bottleneck={self.bottleneck}): a bottleneck is at least 1 wide.")
        if self.scale == 0 and self.norm != "out":
            raise UserError("Adapter(scale=0) multiplies its change by 0 and can learn nothing. Leave scale out.")
        if self.placement == "multi-head" and shape.d_in != shape.d_out:
            raise UserError("Adapter(placement='multi-head') acts on the heads: give it sites=attn.heads.")
        if self.placement == "multi-head" and self.source == "stream":
            raise UserError("Adapter(placement='multi-head') reads the layer's query: leave out source=stream.")
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
        source = h if self.placement == "sequential" and self.source == "block" else x
        if self.norm == "in":
            source = F.layer_norm(source, p["norm"].shape, p["norm"], p["norm_bias"])
        added = self._per_head(p, source) if self.placement == "multi-head" else self._bottleneck(p, source)
        added = added * (p["scale"] if self.scale == "learned" else self.scale)
        if self.norm == "out":
            added = F.layer_norm(added, p["norm"].shape, p["norm"], p["norm_bias"])
        return h + added

    @property
    def formula(self) -> Form | None:
        if self.source == "stream":
            return None  # it reads another place than it changes
        source = {"sequential": "h", "parallel": "x", "multi-head": "q"}[self.placement]
        source = f"LN({source}, norm, norm_bias)" if self.norm == "in" else source
        active = {"relu": "ReLU", "silu": "SiLU", "gelu": "GELU"}.get(self.activation, self.activation)
        if self.placement == "multi-head":
            change = f"{active}({source}[i] @ down[i].T) @ up[i].T"
        else:
            change = f"{active}({source} @ down.T + down_bias) @ up.T + up_bias"
        scaled = {"learned": "scale * change", 1.0: "change"}.get(self.scale, f"{self.scale} * change")
        added = f"LN({scaled}, norm, norm_bias)" if self.norm == "out" else scaled
        insertion: Literal["sequential", "parallel"] = "sequential" if self.placement == "sequential" else "parallel"
        return Form(change, insertion, ", ".join(self.sites), f"h + {added}")

    @property
    def counted(self) -> Counted | None:
        plain = self.norm == "none" and self.scale != "learned" and self.placement != "multi-head"
        return Counted("adapter", self.bottleneck, self.sites) if plain and self.source == "block" else None

    def _bottleneck(self, p: Params, source: Tensor) -> Tensor:
        return F.linear(self._active(F.linear(source, p["down"], p["down_bias"])), p["up"], p["up_bias"])

    def _per_head(self, p: Params, query: Tensor) -> Tensor:
        heads, _, width = p["down"].shape
        split = query.reshape(*query.shape[:-1], heads, width)
        hidden = self._active(torch.einsum("...hd,hrd->...hr", split, p["down"]))
        return torch.einsum("...hr,hdr->...hd", hidden, p["up"]).flatten(-2)

    def _active(self, hidden: Tensor) -> Tensor:
        if self.activation == "softmax":
            return hidden.softmax(-1)
        if self.activation == "silu":
            return F.silu(hidden)
        return F.relu(hidden) if self.activation == "relu" else F.gelu(hidden)

    def _down(self, *shape: int) -> Tensor:
        if self.start == "bert":
            return 0.02 * torch.randn(shape)
        return (2 * torch.rand(shape) - 1) / math.sqrt(shape[-1])

    def _up(self, *shape: int) -> Tensor:
        return 0.02 * torch.randn(shape) if self.start == "bert" else torch.zeros(shape)
