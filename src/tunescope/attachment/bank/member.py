"""One name of a bank, as if its artifacts were attached alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from torch import Tensor

from tunescope.attachment.bank.banked import Banked
from tunescope.attachment.context_keys import positions_of
from tunescope.methods.artifact import Artifact


class Member:
    """What `Attached` tells of its artifacts and does with them, for one name of an attached bank."""

    def __init__(self, bank: Banked, name: str) -> None:
        self.bank, self.name = bank, name
        self.model = bank.model
        self.artifacts: tuple[Artifact, ...] = bank.artifacts(name)
        self.positions = sum(positions_of(bank.model, artifact) for artifact in self.artifacts)
        self.training = False

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Within it every row of every call has these artifacts."""
        with self.bank.rows([self.name]):
            yield

    def named_parameters(self) -> dict[str, Tensor]:
        """The tensors to optimise, by "INDEX.NAME"."""
        start = f"{self.name}/"
        found = self.bank.named_parameters()
        return {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}

    def train(self, mode: bool = True) -> Self:
        """Gradients of these tensors on (or off), and dropout of the bank's deltas."""
        self.training = self.bank.training = mode
        for value in self.named_parameters().values():
            value.requires_grad_(mode)
        return self

    def eval(self) -> Self:
        return self.train(False)
