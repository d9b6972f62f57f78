"""Full fine-tuning: a change to every parameter. The yardstick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunescope.methods.artifact import Counted, PatchDelta


@dataclass(frozen=True)
class Full(PatchDelta):
    """A change to every parameter of the model, tied ones once.

    Tensors: by a parameter's name in the model what is added to it, of its shape, such as "wte.weight" (vocabulary,
    width); zeros at first.
    """

    learning_rates: ClassVar[tuple[float, float, float]] = (3e-5, 1e-4, 1e-3)
    served_as: ClassVar[str] = "merged"
    whole_model: ClassVar[bool] = True

    @property
    def counted(self) -> Counted:
        return Counted("full")

    def selects(self, name: str) -> bool:
        return True
