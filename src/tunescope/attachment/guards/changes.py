"""Whether what keys were made from may have changed since: the modules of a stack, their tensors and hooks, artifacts.

Written in place, put in the place of another, moved, added, removed: each is told. What is written through `.data`
leaves no trace, so some values of every tensor are compared, where a text begins and not in each step of writing on.
Not told: a write through `.data` to none of these values, a plain attribute of a module or of the configuration.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tunescope.models.split import is_split, is_split_over

SAMPLED = 64  # values of a tensor
Trace = tuple[object, ...]


class Watch:
    """Of one stack, or of none where the artifacts are all that matters; equal traces: no change was seen between."""

    def __init__(self, stack: nn.Module | None) -> None:
        self._stack = stack
        own = () if stack is None else stack.parameters()
        self._at_first = [weakref.ref(value) for value in own if not value.is_inference()]
        self._compared: Trace = ()  # what the samples were taken of
        self._samples: list[list[Tensor]] = []
        self._values: list[Tensor] = []
        self._changes = 0

    def trace(self, beside: Sequence[Tensor], *, looks_inside: bool) -> Trace:
        """beside: tensors of artifacts. looks_inside: sampled values are compared, too, which costs as much again."""
        found = (*self._structure(), *map(_identity, beside))
        if looks_inside:
            self._compare(found, beside)
        return (*found, self._changes)

    def _structure(self) -> list[object]:
        if self._stack is None:
            return []
        if is_split_over(self._stack):  # gathered around a call: what its processes hold then is no change
            held = (one() for one in self._at_first)
            return [value._version for value in held if value is not None]
        return list(_walked(self._stack))

    def _compare(self, found: Trace, beside: Sequence[Tensor]) -> None:
        if found != self._compared:
            own = [] if self._stack is None else [*self._stack.parameters(), *self._stack.buffers()]
            self._samples, self._compared = _samples([*own, *beside]), found
        with torch.no_grad():
            values = [torch.cat(some) for some in self._samples]
        if len(values) != len(self._values) or not all(map(_equal, values, self._values)):
            self._values, self._changes = values, self._changes + 1


def _walked(stack: nn.Module) -> Iterator[object]:
    """Of every pass, so modules are asked for no more than their dictionaries."""
    left = [stack]
    while left:
        own = left.pop().__dict__
        for group in (own["_parameters"], own["_buffers"]):
            for value in group.values():
                if value is not None:
                    yield _identity(value)
        for hooks in (own["_forward_hooks"], own["_forward_pre_hooks"]):
            if hooks:
                yield from _foreign(hooks)
        for module in own["_modules"].values():
            if module is not None:
                yield id(module)
                left.append(module)
        yield id(own.get("forward"))


def _foreign(hooks: Mapping[int, Any]) -> Iterator[int]:
    """Ours are the artifacts', whose tensors are compared."""
    ours = __name__.partition(".")[0] + "."
    return (key for key, hook in hooks.items() if not str(getattr(hook, "__module__", "")).startswith(ours))


def _identity(value: Tensor) -> object:
    """Another for another tensor, for one written in place, and for one whose values lie elsewhere by now."""
    if value.is_meta or is_split(value):  # its values are there for the time of a call
        return None
    return id(value), None if value.is_inference() else value._version, value.dtype, value.data_ptr()


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


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
