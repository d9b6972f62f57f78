"""Parameters of a model: what they are called, and how others stand in their places for the time being."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.site_hooks import are_tuned
from tunescope.methods.artifact import Params, PatchDelta
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import ORIGINALS, REGISTERED

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def named_parameters(model: PreTrainedModel) -> dict[str, list[tuple[nn.Module, str]]]:
    """Canonical name -> where the parameter stands (several places where it is tied), the unused pooler left out.

    Names inside the base model are relative to it, those outside start with "head:", so that they are the same with
    and without a head.
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    inside = {id(module) for module in model.base_model.modules()}
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    names: dict[int, str] = {}
    roots = [("", model.base_model)] if model.base_model is model else [("", model.base_model), ("head:", model)]
    for head, root in roots:
        for path, module in root.named_modules():
            parts = path.split(".")
            if "pooler" in parts or parts[0] == REGISTERED or (head and id(module) in inside):
                continue
            for attribute, parameter in module._parameters.items():
                if parameter is not None:
                    owners.setdefault(id(parameter), []).append((module, attribute))
                    names.setdefault(id(parameter), f"{head}{path}.{attribute}".lstrip("."))
    return {names[key]: owners[key] for key in owners}


@contextmanager
def patched(model: PreTrainedModel, changes: list[tuple[PatchDelta, Params]]) -> Iterator[None]:
    """Parameters stand changed in their modules, made anew for every forward pass that trains; put back afterwards.

    They stay in place between passes, for gradient checkpointing reads them again on the way back, and `fingerprint`
    finds the base's own under ORIGINALS.
    """
    if not changes:
        yield
        return
    places = named_parameters(model)
    touched = {name for spec, tensors in changes for name in spec.patch(tensors)}
    base = {name: places[name][0][0]._parameters[places[name][0][1]] for name in touched}
    inside: list[nn.Module] = []
    state: dict[str, Any] = {"made": None}

    def put(values: dict[str, Any]) -> None:
        for name, value in values.items():
            for module, attribute in places[name]:
                module._parameters[attribute] = value

    def enter(module: nn.Module, _args: object) -> None:
        if module in inside:  # an interrupt cut its last call short, for which torch calls no hook
            inside.clear()
        inside.append(module)
        versions = tuple(value._version for _, tensors in changes for value in tensors.values())
        made = None if are_tuned(*(tensors for _, tensors in changes)) else versions
        if len(inside) == 1 and (made is None or made != state["made"]):
            put(changed(base, changes))  # type: ignore[arg-type]
            state["made"] = made

    def leave(module: nn.Module, _args: object, _output: object) -> None:
        if module in inside:
            del inside[inside.index(module) :]

    handles = []
    try:
        model.base_model.__dict__[ORIGINALS] = base
        with torch.no_grad():
            put(changed(base, changes))  # type: ignore[arg-type]
        for module in dict.fromkeys([model, model.base_model, *anatomy(model).entries.values()]):
            handles.append(module.register_forward_pre_hook(uncompiled(enter)))
            handles.append(module.register_forward_hook(uncompiled(leave), always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        put(base)
        model.base_model.__dict__.pop(ORIGINALS, None)


def changed(base: dict[str, Tensor], changes: list[tuple[PatchDelta, Params]]) -> dict[str, Tensor]:
    """The parameters with all changes added, in float32 where they are stored in less."""
    values = dict(base)
    for spec, tensors in changes:
        for name, change in spec.patch(tensors).items():
            values[name] = added(spec, values[name], change)
    return values


def added(spec: PatchDelta, value: Tensor, change: Tensor) -> Tensor:
    """A parameter with a change added, in all of its rows or in those that the spec names."""
    if not spec.rows:
        return (value + change).to(value.dtype)
    rows = torch.tensor(spec.rows, device=value.device)
    return value.index_copy(0, rows, (value[rows] + change).to(value.dtype))
