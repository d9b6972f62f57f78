"""A classification head: one linear map of the state at the first real token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Params, SiteDelta, SiteShape


@dataclass(frozen=True)
class Head(SiteDelta):
    """logits (batch, n_labels) of an encoder, read at each row's first real token, never at a context's.

    Attached, it adds `.logits` to what the model gives, which is otherwise unchanged.
    n_labels: how many. sites: "pooled", the one place where a head stands.
    pooler: what the model's own pooler makes of the first token is read instead of its state, as BERT's classes do.

    Tensors: "pooled:weight" (n_labels, width), normal with deviation .02, and "pooled:bias" (n_labels,), zeros.

    Raises UserError, once it meets a model, for less than two labels.
    """

    learning_rates: ClassVar[tuple[float, float, float]] = (1e-3, 1e-2, 3e-2)
    decides_keys: ClassVar[bool] = False  # it reads the end of the model

    n_labels: int = 2
    pooler: bool = False
    sites: tuple[str, ...] = ("pooled",)

    @property
    def reads(self) -> str:
        return "pooler" if self.pooler else "input"

    def init(self, shape: SiteShape) -> Params:
        if self.n_labels < 2:
            raise UserError(f"Head(n_labels={self.n_labels}): a classifier tells at least two labels apart.")
        return {"weight": 0.02 * torch.randn(self.n_labels, shape.d_in), "bias": torch.zeros(self.n_labels)}

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor:
        """x (batch, width) -> (batch, n_labels)."""
        return F.linear(x, p["weight"], p["bias"])
