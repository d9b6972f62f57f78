"""A loaded model that a caller lends for a while, and has back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tunescope.models.load_options import is_placed
from tunescope.system.interrupts import interrupts_held

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

RECOMPUTES = ("gradient_checkpointing", "_gradient_checkpointing_func")  # of a module of transformers that can
HOOKS = ("_require_grads_hook", "_require_grads_hooks")  # of a model, while its embeddings ask for gradients


@contextmanager
def lent(model: PreTrainedModel | None) -> Iterator[None]:
    """Afterwards the model is on the device, in the modes and with the checkpointing that it had; None is no model."""
    if model is None:
        yield
        return
    device, modes = model.device, {module: module.training for module in model.modules()}
    recomputes = {module: _own(module, RECOMPUTES) for module in modes}
    hooks = _own(model, HOOKS)
    try:
        yield
    finally:
        with interrupts_held():
            for module, mode in modes.items():
                module.training = mode
                _put_back(module, RECOMPUTES, recomputes[module])
            if _own(model, HOOKS) != hooks:
                model.disable_input_require_grads()
                _put_back(model, HOOKS, hooks)
            if model.device != device and not is_placed(model):
                model.to(device)


def _own(module: nn.Module, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: vars(module)[name] for name in names if name in vars(module)}


def _put_back(module: nn.Module, names: tuple[str, ...], was: dict[str, Any]) -> None:
    for name in names:
        vars(module).pop(name, None)
    vars(module).update(was)
