"""Parts of a model by themselves, be it sharded: their parameters are gathered around the call, and let go after it.

`fully_shard` gathers parameters around a call of the whole model; what calls a part of it goes through here. Every
process of the group has to make the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn
from torch.func import functional_call

from tunescope.models.split import is_sharded, is_split

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CALL = "_tunescope_call"

T = TypeVar("T")


def through(model: PreTrainedModel, call: Callable[[], T]) -> T:
    """What `call` gives, a call of the model's base or of a stack of it, as within a call of the model."""
    if not is_sharded(model) or _is_in_a_call(model):
        return call()
    from torch.distributed.fsdp import register_fsdp_forward_method

    model.__dict__[CALL] = call
    try:
        register_fsdp_forward_method(model, CALL)
        found: T = getattr(model, CALL)()
        return found
    finally:
        model.__dict__.pop(CALL, None)


def called(module: nn.Module, x: Tensor) -> Tensor:
    """What one module of the model makes of x, wherever its parameters are; gradients reach x alone."""
    parts: dict[str, Any] = {name: value for name, value in module.named_parameters() if is_split(value)}
    if not parts:
        made: Tensor = module(x)
        return made
    whole = {name: value.detach().full_tensor() for name, value in parts.items()}
    found: Tensor = functional_call(module, whole, (x,))
    return found


def kept_whole(model: PreTrainedModel) -> Callable[[nn.Module, list[Tensor]], list[Tensor]]:
    """Passes on what is taken from within a module, so that its layer is gathered again where gradients go back.

    FSDP2 gathers a layer when a gradient reaches what leaves it, and keys and values leave it by another way.
    """
    states: dict[nn.Module, Any] = {}
    for module in model.modules():  # from the outermost inwards
        if is_sharded(module):
            states |= dict.fromkeys(module.modules(), module._get_fsdp_state())

    def taken(module: nn.Module, tensors: list[Tensor]) -> list[Tensor]:
        if module not in states:
            return tensors
        own = [value.clone() for value in tensors]  # no views: a write into one would lose what is told
        states[module]._register_pre_backward_hook(own)
        return own

    return taken


def _is_in_a_call(model: Any) -> bool:
    return bool(model._get_fsdp_state()._training_state.name == "FORWARD")
