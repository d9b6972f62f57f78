"""Whether what keys were made from may have changed since: the modules of a stack, their tensors and hooks, artifacts.

Written in place, put in the place of another, moved, added, removed: each is told where a text begins. What is written
through `.data` leaves no trace, so some values of every tensor are compared there. In a step of writing on, the tensors
that were there are asked whether they were written in place, and no more. Not told: a write through `.data` to none of
these values, a plain attribute of a module or of the configuration.

Where it cannot be told what acts, nothing is kept: a module is in training mode or has a hook that is not of a library
known here, gradients are asked for of the stack itself, or torch.func transforms the call.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.nn.modules import module as torch_module

from tunescope.models.positions import RESCALED
from tunescope.models.split import is_initialized, is_split, is_split_over

SAMPLED = 64  # values of a tensor
OURS = __name__.partition(".")[0]
KNOWN = {"torch", "transformers", "accelerate"}  # whose hooks do the same in every call
ADAPTERS = "_disable_adapters"  # of a layer of peft's


class Watch:
    """Of one stack, or of none where the artifacts are all that matters."""

    def __init__(self, stack: nn.Module | None) -> None:
        self._stack = stack
        own = () if stack is None else stack.parameters()
        self._at_first = [weakref.ref(value) for value in own if not value.is_inference()]
        self._things: list[object] = []  # held, so that no other is taken for one that has gone
        self._marks: list[object] = []
        self._values: list[Tensor] = []
        self._amid: tuple[list[Tensor], list[object]] | None = None  # the stack's tensors, and their marks with others
        self._changes = 0

    def trace(self, beside: Sequence[Tensor], *, begins: bool) -> int | None:
        """A number that is another after any change; None where nothing may be kept.

        beside: tensors of artifacts. begins: a text does, so that everything is looked at; else what is cheap.
        """
        if peek_interpreter_stack() is not None:
            return None
        if not begins and self._is_as_begun(beside):
            return self._changes
        self._amid = None
        found = self._structure()
        if found is None:
            return None
        things, marks = found
        own = [thing for thing in things if isinstance(thing, Tensor)]
        self._amid = own, _marks([*own, *beside])
        _take(things, marks, beside)
        is_same = len(things) == len(self._things) and all(map(is_, things, self._things)) and marks == self._marks
        if is_same and not begins:
            return self._changes
        values = self._sampled(beside)
        if not (is_same and all(map(torch.equal, values, self._values))):
            self._things, self._marks, self._values = things, marks, values
            self._changes += 1
        return self._changes

    def _is_as_begun(self, beside: Sequence[Tensor]) -> bool:
        """False where it cannot be told either: nothing was looked at yet, or gradients may be asked for."""
        if self._amid is None or torch.is_grad_enabled() or is_initialized():  # split tensors have marks of their own
            return False
        if self._stack is not None and self._stack.training:
            return False
        own, marks = self._amid
        return [*map(_mark, own), *_marks(beside)] == marks

    def _structure(self) -> tuple[list[object], list[object]] | None:
        if self._stack is None:
            return [], []
        if is_split_over(self._stack):  # gathered around a call: what its processes hold then is no change
            if self._stack.training:
                return None
            held = (one() for one in self._at_first)
            return [], [value._version for value in held if value is not None]
        return _walked(self._stack)

    def _sampled(self, beside: Sequence[Tensor]) -> list[Tensor]:
        own = [] if self._stack is None else [*self._stack.parameters(), *self._stack.buffers()]
        with torch.no_grad():
            return [torch.cat(some) for some in _samples([*own, *beside])]


def _walked(stack: nn.Module) -> tuple[list[object], list[object]] | None:
    """What is there, and what it was like. Of every pass, so modules are asked for no more than their dictionaries."""
    things: list[object] = []
    marks: list[object] = []
    for hooks in (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks):
        if hooks and not _take_hooks(things, hooks):
            return None
    left, asks = [stack], torch.is_grad_enabled()
    while left:
        module = left.pop()
        own = module.__dict__
        if own["training"]:
            return None
        if ADAPTERS in own:
            marks.append(adapters_of(own))
        things += (module, type(module), own.get("forward"))
        is_rescaled = own.get("rope_type") in RESCALED  # it writes its frequencies in every pass
        for group in (own["_parameters"], {} if is_rescaled else own["_buffers"]):
            if group:
                _take(things, marks, group.values())
                if asks and any(value is not None and value.requires_grad for value in group.values()):
                    return None
        is_called = module is not stack  # a context is run past the stack's own hooks
        for hooks in (own["_forward_hooks"], own["_forward_pre_hooks"]):
            if is_called and hooks and not _take_hooks(things, hooks):
                return None
        left += [child for child in own["_modules"].values() if child is not None]
    return things, marks


def adapters_of(own: Mapping[str, Any]) -> object:
    """Which adapters of a layer of peft's act, and how strongly. own: the layer's attributes."""
    scaling = own.get("scaling") or {}
    return repr((own[ADAPTERS], own.get("_active_adapter"), sorted(scaling.items()), own.get("merged_adapters")))


def _take(things: list[object], marks: list[object], values: Iterable[Tensor | None]) -> None:
    found = [value for value in values if _is_there(value)]
    things += found
    marks += map(_mark, found)


def _marks(values: Iterable[Tensor]) -> list[object]:
    return [_mark(value) for value in values if _is_there(value)]


def _is_there(value: Tensor | None) -> TypeGuard[Tensor]:
    """False for one whose values are there for the time of a call."""
    return value is not None and not value.is_meta and not is_split(value)


def _mark(value: Tensor) -> object:
    """Another for one written in place, and for one whose values lie elsewhere by now or have another type."""
    return None if value.is_inference() else value._version, value.dtype, value.data_ptr()


def _take_hooks(things: list[object], hooks: Mapping[int, Any]) -> bool:
    """Ours are the artifacts', whose tensors are compared. False for those of whom nobody knows what they hang on."""
    for hook in hooks.values():
        of = str(getattr(hook, "__module__", "")).partition(".")[0]
        if of in KNOWN:
            things.append(hook)
        elif of != OURS:
            return False
    return True


def _samples(values: Sequence[Tensor]) -> list[list[Tensor]]:
    """Views of some values of each, in groups of a device and a type."""
    groups = defaultdict[object, list[Tensor]](list)
    for value in values:
        if type(value) in (Tensor, nn.Parameter) and not value.is_meta and value.numel():
            groups[value.device, value.dtype].append(_sample(value.detach()))
    return list(groups.values())


def _sample(value: Tensor) -> Tensor:
    """(SAMPLED,) at most, spread over where its values lie."""
    room = value.untyped_storage().nbytes() // value.element_size() - value.storage_offset()
    there = min(value.numel(), room)
    count = min(SAMPLED, there)
    return value.as_strided((count,), (there // count,), value.storage_offset())
