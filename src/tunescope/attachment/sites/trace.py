"""One pass of a model on a short text, with all that its layers' linear maps, blocks and attention were given and gave.

Each layer begins a graph of its own, so that a gradient asked of it stays within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.attention.function import STATE, LayerState
from tunescope.attachment.attention.reach import Reached, reached, resting, run_tiny, switched
from tunescope.attachment.attention.trial_inputs import tried
from tunescope.attachment.sites.layers import Layer, layers_of
from tunescope.errors import UserError
from tunescope.models.anatomy import anatomy
from tunescope.models.sites import is_map

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class Call:
    """A module's input and output. path: from the base model. at: its place among all calls of the pass."""

    path: str
    module: nn.Module
    x: Tensor
    h: Tensor
    at: int


@dataclass(frozen=True, eq=False)
class Attention:
    """What attention saw in one module, before heads were joined: (batch, heads, length, width) each."""

    place: Reached
    path: str
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    at: int


@dataclass(frozen=True, eq=False)
class Seen:
    """A layer in the pass. maps: its linear maps in the order of their calls; blocks: its other modules.

    outs: what left it. Of layers that look the same, the first alone keeps its tensors.
    """

    layer: Layer
    maps: list[Call] = field(default_factory=list)
    blocks: list[Call] = field(default_factory=list)
    attention: list[Attention] = field(default_factory=list)
    outs: list[Tensor] = field(default_factory=list)

    def forget(self) -> None:
        """Lose the tensors, and with them the graph, of which a large model has many."""
        none = torch.empty(0)
        self.maps[:] = [replace(one, x=none, h=none) for one in self.maps]
        self.attention[:] = [replace(one, query=none, key=none, value=none, output=none) for one in self.attention]
        self.blocks.clear()
        self.outs.clear()

    @property
    def signature(self) -> object:
        """Equal for layers whose sites lie at the same places."""
        cut = len(self.layer.path) + 1
        called = tuple(one.path[cut:] for one in self.maps)
        attends = tuple((one.place.name.rpartition(".")[2], one.path[cut:], one.place.shape) for one in self.attention)
        return self.layer.stack, self.layer.inside, called, attends


def traced(model: PreTrainedModel) -> list[Seen]:
    """Every layer of the model, which is left as it was; gradients are to be enabled.

    Raises UserError where the model cannot be run on a short text.
    """
    try:
        places = reached(model)
    except UserError:
        places = ()  # what is not attention is found all the same
    base = model.base_model
    layers = layers_of(base, anatomy(model).entries, places)
    paths = {module: path for path, module in base.named_modules()}
    seen = {layer.path: Seen(layer) for layer in layers}
    with ExitStack() as stack:
        for context in (switched(model), resting(model)):
            stack.enter_context(context)
        stack.enter_context(torch.compiler.set_stance("force_eager"))  # in a layer that is compiled hooks see nothing
        stack.enter_context(_watched(base, _Notes(paths, seen, {place.module: place for place in places})))
        stack.enter_context(tried(model, "run on a short input to look for its sites"))
        run_tiny(model)
    return list(seen.values())


@dataclass(frozen=True, eq=False)
class _Notes:
    """What every pass is written into: of each layer by its path, what was seen."""

    paths: dict[nn.Module, str]
    seen: dict[str, Seen]
    names: dict[nn.Module, Reached]
    turn: Iterator[int] = field(default_factory=count)
    known: dict[object, Seen] = field(default_factory=dict)

    def of(self, path: str) -> Seen:
        return next(one for at, one in self.seen.items() if path.startswith(f"{at}."))

    def attended(self, module: nn.Module, made: dict[str, Tensor | None]) -> None:
        path = self.paths[module]
        parts = [made[name] for name in ("query", "key", "value", "output")]
        found = Attention(self.names[module], path, *parts, next(self.turn))  # type: ignore[call-arg, arg-type]
        self.of(path).attention.append(found)

    def called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        x, h = first(args, kwargs), first_out(output)
        if x is None or h is None:
            return output
        call = Call(self.paths[module], module, x, h, next(self.turn))
        is_one = is_map(module) and isinstance(output, Tensor)  # a router that is a map too gives more
        (self.of(call.path).maps if is_one else self.of(call.path).blocks).append(call)
        return h.clone() if isinstance(output, Tensor) else output  # a write in place would be taken for the output

    def ended(self, layer: nn.Module, _args: object, output: object) -> None:
        one = self.seen[self.paths[layer]]
        given = output if isinstance(output, tuple | list) else (output,)
        one.outs.extend(part for part in given if isinstance(part, Tensor) and part.is_floating_point())
        like = self.known.setdefault(one.signature, one)
        if like is not one and like.signature == one.signature:  # else it was gone through again since
            one.forget()
        else:
            self.known[one.signature] = one


@contextmanager
def _watched(base: nn.Module, notes: _Notes) -> Iterator[None]:
    """Within it each pass is noted."""
    before = {module: module.__dict__.get(STATE) for module in notes.names}
    handles = []
    try:
        for at in notes.seen:
            layer = base.get_submodule(at)
            handles.append(layer.register_forward_pre_hook(_begin, with_kwargs=True))
            handles.append(layer.register_forward_hook(notes.ended))
            for module in layer.modules():
                if module is not layer and module not in notes.names and not isinstance(module, nn.ModuleList):
                    handles.append(module.register_forward_hook(notes.called, with_kwargs=True))
        for module in notes.names:
            module.__dict__[STATE] = LayerState(keep=notes.attended, keeps_weights=False)
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module, state in before.items():
            module.__dict__.pop(STATE, None)
            if state is not None:
                module.__dict__[STATE] = state


def _begin(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_own, args)), {name: _own(value) for name, value in kwargs.items()}


def _own(value: object) -> object:
    """A float tensor as the beginning of a graph; it may be written in place."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().requires_grad_().clone()
    return value


def first(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The tensor that a module works on: its first one."""
    return next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)


def first_out(output: object) -> Tensor | None:
    found = output[0] if isinstance(output, tuple) and output else output
    return found if isinstance(found, Tensor) else None
