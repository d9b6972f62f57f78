"""A classification head: a linear map, or two, of the state at a row's first real token, its last, or at every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Params, SiteDelta, SiteShape

ACTIVE: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}


@dataclass(frozen=True)
class Head(SiteDelta):
    """logits (batch, n_labels), read at each row's first real token, never at a context's.

    Attached, it adds `.logits` to what the model gives, which is otherwise unchanged.
    n_labels: how many; 1 is a score. sites: "pooled", the one place where a head stands.
    pooler: what the model's own pooler makes of the first token is read instead of its state, as BERT's classes do. It
    is not tuned, and the base's fingerprint does not tell it from another. It reads the first column: rows padded on
    the left are refused.
    token: "first"; "last", as decoders' classes do, the last one whose id is not the config's pad_token_id, or,
    where that is None, that the mask has; or "every", which gives logits (batch, length, n_labels). A decoder's first
    token knows nothing of the text, so it takes the others alone.
    dense: a map of the state's own width in front, with this activation behind it, as RoBERTa's classes have; "none"
    for no such map. bias: whether the maps have one.

    Tensors: "pooled:weight" (n_labels, width), normal with deviation .02, and "pooled:bias" (n_labels,), zeros; with
    dense "pooled:dense_weight" (width, width) and "pooled:dense_bias" (width,) like them.

    Raises UserError, once it meets a model, for no labels, and for a place that the model's kind does not have.
    """

    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 1e-2, 3e-2)
    decides_keys: ClassVar[bool] = False  # it reads the end of the model

    n_labels: int = 2
    pooler: bool = False
    sites: tuple[str, ...] = ("pooled",)
    token: Literal["first", "last", "every"] = "first"
    dense: Literal["none", "tanh", "relu", "gelu"] = "none"
    bias: bool = True

    @property
    def reads(self) -> str:
        if self.pooler:
            return "pooler"
        return {"first": "input", "last": "last token", "every": "every token"}[self.token]

    def init(self, shape: SiteShape) -> Params:
        if self.n_labels < 1:
            raise UserError(f"Head(n_labels={self.n_labels}): a head gives at least one number, and tells two apart.")
        if self.pooler and self.token != "first":
            raise UserError(f"{self}: a pooler reads the first token: leave out pooler, or token={self.token}.")
        made = {"weight": 0.02 * torch.randn(self.n_labels, shape.d_in)}
        if self.bias:
            made["bias"] = torch.zeros(self.n_labels)
        if self.dense != "none":
            made["dense_weight"] = 0.02 * torch.randn(shape.d_in, shape.d_in)
            made |= {"dense_bias": torch.zeros(shape.d_in)} if self.bias else {}
        return made

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        """x (..., width) -> (..., n_labels)."""
        if self.dense != "none":
            x = ACTIVE[self.dense](F.linear(x, p["dense_weight"], p.get("dense_bias")))
        return F.linear(x, p["weight"], p.get("bias"))
