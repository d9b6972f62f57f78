"""Where the layers of a model are: the lists of modules that its stacks go through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tunescope.attachment.attention.reach import Reached
from tunescope.models.sites import is_map


@dataclass(frozen=True)
class Layer:
    """stack: "encoder" or "decoder". path: from the base model. inside: its modules by path, class and weight."""

    stack: str
    index: int
    path: str
    inside: tuple[object, ...]


def layers_of(base: nn.Module, entries: Mapping[str, Any], places: Sequence[Reached]) -> list[Layer]:
    """The layers of every stack, in order: of the outermost lists those that attend, or, where none does, the longest.

    entries: stack -> the module that embeds its text.
    """
    paths = {module: path for path, module in base.named_modules()}
    found = []
    for stack, entry in entries.items():
        attending = {id(place.module) for place in places if place.name.startswith(f"{stack}.")}
        lists = [(path, one) for path, one in _outermost(entry, paths[entry]) if any(map(is_map, one.modules()))]
        chosen = [(path, one) for path, one in lists if any(id(module) in attending for module in one.modules())]
        if not chosen and lists:
            chosen = [max(lists, key=lambda item: len(item[1]))]
        members = [(f"{path}.{name}", layer) for path, one in chosen for name, layer in one.named_children()]
        found += [Layer(stack, index, path, _inside(layer)) for index, (path, layer) in enumerate(members)]
    return found


def _outermost(module: nn.Module, path: str) -> Iterator[tuple[str, nn.ModuleList]]:
    for name, child in module.named_children():
        below = f"{path}.{name}" if path else name
        if isinstance(child, nn.ModuleList):
            yield below, child
        else:
            yield from _outermost(child, below)


def _inside(layer: nn.Module) -> tuple[object, ...]:
    return tuple((path, type(module), shapes(module)) for path, module in layer.named_modules())


def shapes(module: nn.Module) -> tuple[object, ...]:
    """Of the module's own parameters, by name."""
    held = module._parameters.items()
    return tuple((name, tuple(value.shape)) for name, value in held if value is not None)
