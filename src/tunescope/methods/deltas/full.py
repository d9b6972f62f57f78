"""Full fine-tuning: a change to every parameter. The yardstick; or to some of them, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Counted, Params, PatchDelta


@dataclass(frozen=True)
class Full(PatchDelta):
    """A change to every parameter of the model, tied ones once; but to none of an encoder's pooler, whatever reads it.

    only: names of parameters, a * for anything, as in only=*norm*: these alone are changed; none means all. They count
    from the base model (embed_tokens.weight, h.0.ln_1.weight; head:score.weight is of the head), or are as
    named_parameters() of a model with a head has them (model.embed_tokens.weight, transformer.h.0.ln_1.weight,
    score.weight).
    rows: of each of them these rows alone, tokens of an embedding say; none means all.

    Tensors: by a parameter's name in the model what is added to it, of its shape, such as "wte.weight" (vocabulary,
    width), or (rows, width); zeros at first.

    Raises UserError, once it meets a model, for a name that no parameter has, and for rows that one does not have.
    """

    learning_rates: ClassVar[tuple[float, float, float]] = (3e-5, 1e-4, 1e-3)
    served_as: ClassVar[str] = "merged"
    whole_model: ClassVar[bool] = True

    only: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def counted(self) -> Counted | None:
        return None if self.only or self.rows else Counted("full")

    def selects(self, name: str) -> bool:
        return not self.only or any(fnmatchcase(name, one) for one in self.only)

    def init(self, parameters: Mapping[str, Tensor]) -> Params:
        if not self.rows:
            return {name: torch.zeros_like(value, requires_grad=False) for name, value in parameters.items()}
        for name, value in parameters.items():
            if len(set(self.rows)) < len(self.rows) or not 0 <= min(self.rows) <= max(self.rows) < len(value):
                raise UserError(f"{self}: {name!r} has rows 0 to {len(value) - 1}, to be named once each.")
        return {name: torch.zeros_like(value[: len(self.rows)]) for name, value in parameters.items()}
