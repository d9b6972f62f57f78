"""What a model is asked with: what `attach` returns, one name of a bank, or a model with nothing attached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.methods.artifact import Artifact


class Tuned(Protocol):
    """What stands in the model. positions: those that its contexts take. training: whether deltas' dropout is on."""

    @property
    def artifacts(self) -> tuple[Artifact, ...]: ...
    @property
    def positions(self) -> int: ...
    @property
    def training(self) -> bool: ...
    def named_parameters(self) -> dict[str, Tensor]:
        """The tensors to optimise, by "INDEX.NAME"."""

    def train(self, mode: bool = True) -> Self:
        """Gradients on and dropout of the deltas on (or off)."""

    def eval(self) -> Self: ...


@dataclass(frozen=True)
class Bare:
    """A model with nothing attached, where what is attached is asked for: nothing, which cannot be trained."""

    artifacts: tuple[Artifact, ...] = ()
    positions: int = 0
    training: bool = False

    def named_parameters(self) -> dict[str, Tensor]:
        return {}

    def train(self, mode: bool = True) -> Self:
        return self

    def eval(self) -> Self:
        return self
