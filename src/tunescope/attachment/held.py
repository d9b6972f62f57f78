"""What a model holds while something is attached to it, and how one lets go: what `Attached` and `Banked` share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from torch import Tensor, nn

from tunescope.attachment.bank.turns import Turns
from tunescope.attachment.guards.marks import attached_to
from tunescope.attachment.guards.other_threads import LOOK, check_quiet, none_begins, wait_until_quiet
from tunescope.attachment.guards.registered import registered
from tunescope.errors import UserError
from tunescope.models.quantised import check_trainable
from tunescope.system.interrupts import interrupts_held

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Held(ABC):
    """A model with something attached. Abstract: what is entered on `_stack` is undone by `detach()`.

    While attached, the base asks for no gradients; `parameters()` do, after `train()`.
    takes_turns: calls of several threads do, by `_turns`.
    """

    takes_turns = False

    def __init__(self, model: PreTrainedModel) -> None:
        check_quiet(model)
        self.model = model
        self.training = False
        self._tree: nn.Module | None = None  # while registered, the module whose mode says what is training
        self._turns = Turns()
        self._stack = ExitStack()

    @abstractmethod
    def _enter(self) -> None:
        """Attach, each step entered on `_stack`."""

    def _enter_or_leave(self) -> None:
        try:
            with interrupts_held(), none_begins(self.model):
                check_quiet(self.model)
                self._enter()
        except BaseException:
            with interrupts_held():
                self._stack.close()
            raise

    @abstractmethod
    def named_parameters(self) -> dict[str, Tensor]:
        """The tensors to optimise, by name: float leaves, the same objects that the artifacts hold."""

    @abstractmethod
    def _check_trains(self) -> None:
        """UserError where what is attached cannot be trained."""

    def parameters(self) -> list[Tensor]:
        """The tensors to optimise, for an optimizer of torch."""
        return list(self.named_parameters().values())

    def train(self, mode: bool = True) -> Self:
        """Gradients on and dropout of the deltas on (or off); the base model's own mode is not touched."""
        if mode:
            self._check_trains()
            check_trainable(self.model)
        self.training = mode
        for value in self.parameters():
            value.requires_grad_(mode)
        return self

    def eval(self) -> Self:
        """`train(False)`: gradients and dropout of the deltas off; the base model's own mode is not touched."""
        return self.train(False)

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Within it what is tuned stands among the model's own parameters too, and trains; afterwards as before.

        For what looks for parameters on the model: transformers' Trainer, accelerate, DDP. Dropout of the deltas is on
        while the model is in training mode, as a Trainer switches it. What is added to a bank meanwhile is not among
        them. See docs/using.md.

        Raises UserError where nothing of it is attached, for a Trainer would then train the model itself.
        """
        self._check_attached("registered()")
        before = self.training
        self.train()
        try:
            with registered(self.model, self.named_parameters()) as self._tree:
                yield
        finally:
            self._tree = None
            self.train(before)

    def _check_attached(self, who: str) -> None:
        if attached_to(self.model) is not self:
            name = type(self.model).__name__
            raise UserError(f"{who}: this was detached from its {name}, or is paused: attach(model, ...) again first.")

    def _drops(self) -> bool:
        """Whether dropout of the deltas is on."""
        return self.training if self._tree is None else self._tree.training

    def detach(self) -> None:
        """Give the model back, bit-identical to before; the artifacts keep their tensors. Calls of others end first."""
        self._leave()
        self.training = False

    def _leave(self) -> None:
        """The model is bare, once other threads' calls are over."""
        with interrupts_held() as met, none_begins(self.model):  # one that comes while this waits for others is met
            if not self.takes_turns:
                wait_until_quiet(self.model, met)
            while not self._turns.lock.acquire(timeout=LOOK):
                met()
            try:
                self._stack.close()
            finally:
                self._turns.lock.release()

    def __enter__(self) -> Self:
        self._check_attached("with")
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()
