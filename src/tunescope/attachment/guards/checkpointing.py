"""Gradient checkpointing: a layer is computed again in the backward pass as it was computed the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.guards.marks import attached_to, standing_in
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FUNCTION = "_gradient_checkpointing_func"  # where transformers keeps what a module's layers are run by
WRAPPED = "checkpoint_fn"  # where torch's CheckpointWrapper keeps what it runs its module by
SETTER = "_set_gradient_checkpointing"  # and what puts it there
AT_REST = "_tunescope_at_rest"  # on a layer that is in training mode to be checkpointed, and for nothing else
Changed = tuple[nn.Module, str, Any]


@contextmanager
def recomputed(model: PreTrainedModel, as_now: Callable[[], Callable[[], None]]) -> Iterator[None]:
    """Within it, what a backward pass computes again is what the forward pass computed, whatever was called since.

    Checkpointing may be switched on before or meanwhile. In compiled code it is as torch has it: with what acts then.

    as_now: asked when a layer is computed; what it gives is called before that is computed again, so that the same
        acts as did. It raises where that cannot be.
    """

    def before(*_: object) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            _taken(model, as_now)  # what was wrapped since, which nobody tells

    with ExitStack() as stack:
        stack.callback(_given_back, model)
        for entry in anatomy(model).entries.values():
            stack.callback(entry.register_forward_pre_hook(before).remove)
        for one in {id(one): one for one in (model, model.base_model)}.values():
            stack.enter_context(standing_in(one, {SETTER: _setter(one, as_now)}))
        _taken(model, as_now)
        yield


def check_stands(model: PreTrainedModel, tuned: object) -> None:
    """UserError where what a layer was computed with is not attached any more."""
    if attached_to(model) is not tuned:
        raise UserError(
            "Gradient checkpointing computes layers again in the backward pass, and what they were computed with is "
            "no longer attached: call backward() before detach(), and outside of paused()."
        )


@contextmanager
def unwrapped(model: nn.Module) -> Iterator[None]:
    """Within it torch's CheckpointWrappers run their modules and compute nothing again, as in a look at gradients."""
    with ExitStack() as stack:
        for module in model.modules():
            if WRAPPED in module.__dict__:
                stack.enter_context(standing_in(module, {WRAPPED: _plain}))
        yield


def _plain(module: nn.Module, *args: object, **kwargs: object) -> object:
    return module(*args, **kwargs)


def _setter(model: PreTrainedModel, as_now: Callable[[], Callable[[], None]]) -> Callable[..., None]:
    inner = getattr(model, SETTER)

    @wraps(inner)
    def switched(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)
        _taken(model, as_now)

    return switched


def _taken(model: nn.Module, as_now: Callable[[], Callable[[], None]]) -> None:
    for module, name, function in running(model):
        if not isinstance(function, _Checkpointing):
            setattr(module, name, _Checkpointing(function, module, as_now))


def _given_back(model: nn.Module) -> None:
    for module, name, function in running(model):
        if isinstance(function, _Checkpointing):
            setattr(module, name, function.function)


def running(model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """What layers are run by where they are checkpointed, by transformers or in torch's CheckpointWrapper."""
    found = ((module, name, module.__dict__.get(name)) for module in model.modules() for name in (FUNCTION, WRAPPED))
    return [one for one in found if one[2] is not None]


@dataclass(frozen=True)
class _Checkpointing:
    """Stands where `function` stood, with the keywords that a partial of torch's has."""

    function: Callable[..., Any]
    module: nn.Module
    as_now: Callable[[], Callable[[], None]]

    @property
    def keywords(self) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self.function, "keywords", {})
        return found

    def __call__(self, layer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.function(layer, *args, **kwargs)
        act, states, weights, is_first = self.as_now(), _states(self.module), _weights(self.module), True

        def run(*given: Any, **named: Any) -> Any:
            nonlocal is_first
            if is_first:
                is_first = False
                with _at_rest(self.module):
                    return layer(*given, **named)
            act()
            with _standing(states, weights):
                return layer(*given, **named)

        return self.function(run, *args, **kwargs)


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """Within it layers are checkpointed though the model is in eval mode, and stay without dropout.

    transformers checkpoints what is in training mode: its layers are, until they are run. Calls are to be made with
    use_cache=False.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]
    resting = [one for one in layers if one.gradient_checkpointing and not one.training]
    try:
        for layer in resting:
            layer.training = layer.__dict__[AT_REST] = True
        yield
    finally:
        for layer in resting:
            layer.training = False
            layer.__dict__.pop(AT_REST, None)


@contextmanager
def _at_rest(layer: nn.Module) -> Iterator[None]:
    """Within it a layer of `checkpointed` is in the mode that it is really in."""
    is_held = AT_REST in layer.__dict__
    layer.training = layer.training and not is_held
    try:
        yield
    finally:
        layer.training = layer.training or is_held


@contextmanager
def _standing(states: dict[nn.Module, LayerState], weights: Sequence[Changed]) -> Iterator[None]:
    before = {module: module.__dict__[STATE] for module in states}
    present = [(module, name, module._parameters[name]) for module, name, _ in weights]
    try:
        _put(states, weights)
        yield
    finally:
        _put(before, present)


def _put(states: dict[nn.Module, LayerState], weights: Sequence[Changed]) -> None:
    for module, state in states.items():
        module.__dict__[STATE] = state
    for module, name, value in weights:
        module._parameters[name] = value


def _states(module: nn.Module) -> dict[nn.Module, LayerState]:
    """What attention is told in this pass; probes are fed once, in the forward pass."""
    states = {one: one.__dict__[STATE] for one in module.modules() if STATE in one.__dict__}
    return {one: replace(state, keep=state.keep and _unfed) for one, state in states.items()}


def _weights(module: nn.Module) -> list[Changed]:
    """Those that were put in the place of a parameter: they are tensors, and no parameters themselves."""
    held = [(one, *item) for one in module.modules() for item in one._parameters.items()]
    return [found for found in held if found[2] is not None and not isinstance(found[2], nn.Parameter)]


def _unfed(_module: nn.Module, _found: dict[str, Tensor | None]) -> None:
    pass
