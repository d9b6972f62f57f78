"""Parameters of a model: what they are called, and how others stand in their places for the time being."""

from __future__ import annotations

import difflib
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tunescope.attachment.guards.changes import Watch
from tunescope.attachment.guards.compiled import uncompiled
from tunescope.attachment.guards.own_weights import kept
from tunescope.attachment.site_hooks import are_tuned
from tunescope.errors import Note, UserError
from tunescope.methods.artifact import Params, PatchDelta
from tunescope.models.anatomy import anatomy, argument_names
from tunescope.models.fingerprint import ORIGINALS, REGISTERED
from tunescope.models.positions import seen_by

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHOWN = 12  # names in a message


def named_parameters(model: PreTrainedModel) -> dict[str, list[tuple[nn.Module, str]]]:
    """Canonical name -> where the parameter stands (several places where it is tied), a pooler left out, used or not.

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


def chosen_parameters(model: PreTrainedModel, spec: PatchDelta) -> dict[str, list[tuple[nn.Module, str]]]:
    """Of the parameters those that a delta changes, by canonical name.

    Raises UserError for a pattern that is no parameter's name, and where there is nothing to change.
    """
    places = named_parameters(model)
    chosen = {name for name in places if spec.selects(name)}
    for pattern in spec.only:
        if any(fnmatchcase(name, pattern) for name in places):
            continue
        listed = {name for name in places if fnmatchcase(_as_listed(model, name), pattern)}
        if not listed:
            raise UserError(_no_name(model, spec, pattern, places))
        chosen |= listed
    if not chosen:
        flags = [name for name, on in sorted(model.config.to_dict().items()) if name.endswith("_bias") and on is False]
        told = f" (its config says {', '.join(f'{name}=False' for name in flags)})" if flags else ""
        raise UserError(f"{spec}: family {model.config.model_type!r} has no such parameter to change{told}.")
    return {name: at for name, at in places.items() if name in chosen}


def _as_listed(model: PreTrainedModel, name: str) -> str:
    """A canonical name as `model.named_parameters()` has it of a model with a head."""
    return name.removeprefix("head:") if name.startswith("head:") else f"{model.base_model_prefix}.{name}"


def _no_name(model: PreTrainedModel, spec: PatchDelta, pattern: str, names: Iterable[str]) -> str:
    """What is said of a pattern that no parameter has: the names there are, with a * for a layer's number."""
    usual = list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names))
    near = difflib.get_close_matches(re.sub(r"(?<=\.)\d+(?=\.)", "*", pattern), usual, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    more = f" and {len(usual) - SHOWN} more" if len(usual) > SHOWN else ""
    return (
        f"{spec}: this {type(model).__name__} has no parameter to change named {pattern!r}.{meant} It "
        f"has {', '.join(usual[:SHOWN])}{more}: {type(spec).__name__}(only=({usual[0]!r},)), say, where * is anything."
    )


class Patched:
    """A model's parameters, changed. base: its own, by name. changes: what is added to them.

    stands: not detached yet. is_whole: the tensors of the one change are the parameters themselves meanwhile
    (`in_place.whole`), and nothing is added.
    """

    def __init__(self, model: PreTrainedModel, changes: list[tuple[PatchDelta, Params]]) -> None:
        self.changes, self.stands, self.is_whole = changes, True, False
        self._places = named_parameters(model)
        touched = {name for spec, tensors in changes for name in spec.patch(tensors)}
        at = {name: self._places[name][0] for name in touched}
        self.base: dict[str, Any] = {name: module._parameters[attribute] for name, (module, attribute) in at.items()}
        self._inside: list[nn.Module] = []
        self._watch = Watch(None)
        self._made: int | None = None
        self._lock = threading.RLock()
        self._placed: dict[str, tuple[Tensor, int]] = {}  # sums that stand in the model, in the version that was put

    def put(self, values: Mapping[str, Any]) -> None:
        own = {} if self.is_whole else values  # which an optimizer writes
        with self._lock:
            for name, value in values.items():
                for module, attribute in self._places[name]:
                    module._parameters[attribute] = value
            self._placed = {name: (value, value._version) for name, value in own.items() if not value.is_inference()}

    def _check_own(self) -> None:
        """UserError where others stand in the model than the sums that were put there."""
        with self._lock:
            lost = next((name for name, (one, _) in self._placed.items() if self._standing(name) is not one), None)
        if lost is not None:
            raise UserError(
                f"Another tensor was put in the place of the parameter {lost!r} while {self.told()} stands changed "
                "there, by functional_call perhaps, and would act without the change or not at all. detach(), put it "
                "there, and attach again."
            )

    def end(self) -> None:
        """The model's own stand in it again."""
        self.stands = False
        self.put(self.base)

    def anew(self) -> None:
        """Changed parameters stand in the model from here on, without gradients."""
        self._made = None
        with torch.no_grad():
            self.put(self._values())

    def modules(self) -> set[nn.Module]:
        """Those whose parameters stand changed."""
        return {module for name in self.base for module, _ in self._places[name]}

    def told(self) -> str:
        return ", ".join(str(spec) for spec, _ in self.changes)

    def read(self, *_: object) -> None:
        """For a state dict of the model or of a part of it: the parameters are what the tensors make of them by now."""
        made = self._watch.trace(self._held(), begins=True)
        if made is None or made != self._made:
            self.check_unwritten()
            self.anew()
            self._made = made

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module in self._inside:  # an interrupt cut its last call short, for which torch calls no hook
            self._inside.clear()
        self._inside.append(module)
        if len(self._inside) == 1:
            self._check_own()
            begins = not seen_by(dict(zip(argument_names(module), args, strict=False)) | kwargs)
            made = self._state(begins=begins)
            if made is None or made != self._made:
                self.check_unwritten()
                with torch.inference_mode(False), torch.enable_grad():  # a call of another thread may train
                    self.put(self._values())
                self._made = made

    def check_unwritten(self) -> None:
        """UserError where something else wrote into sums that stand in the model, which are about to be replaced."""
        if (told := self.written()) is not None:
            raise UserError(told)

    def written(self) -> str | None:
        """What else wrote into sums, told; None where nothing did, or what is there already (DDP, as it begins)."""
        moved = {name: value for name, (value, version) in self._placed.items() if value._version != version}
        moved = {name: value for name, value in moved.items() if self._standing(name) is value}
        if not moved:
            return None
        with torch.no_grad():
            values = self._values()
            lost = [name for name, value in moved.items() if not torch.equal(value, values[name])]
        if not lost:
            return None
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        return (
            f"{lost[0]!r}{more} of the model was written into while {self.told()} stands changed there, and that is "
            "lost. detach(), write, and attach again; an optimizer takes tuned.parameters()."
        )

    def _state(self, *, begins: bool) -> int | None:
        """Another after any change of the tensors; None while they are tuned.

        begins: a text does, so that what was written through `.data` is looked for.
        """
        if are_tuned(*(tensors for _, tensors in self.changes)):
            return None
        return self._watch.trace(self._held(), begins=begins)

    def _held(self) -> list[Tensor]:
        return [value for _, tensors in self.changes for value in tensors.values()]

    def leave(self, module: nn.Module, _args: object, _output: object) -> None:
        if module in self._inside:
            del self._inside[self._inside.index(module) :]

    def follow(self) -> None:
        """The model's own parameters go where those are that stand for them: `model.to` has not reached them."""
        for name, own in self.base.items():
            stands = self._standing(name)
            if not self.is_whole and (own.device, own.dtype) != (stands.device, stands.dtype):
                own.data = own.data.to(stands)

    def _standing(self, name: str) -> Tensor:
        module, attribute = self._places[name][0]
        found = module._parameters[attribute]
        assert found is not None
        return found

    def _values(self) -> dict[str, Tensor]:
        if not self.is_whole:
            self.follow()
            return changed(self.base, self.changes)
        ((_, tensors),) = self.changes
        return {name: value.to(self._standing(name)) for name, value in tensors.items()}


@contextmanager
def patched(model: PreTrainedModel, changes: list[tuple[PatchDelta, Params]]) -> Iterator[Patched | None]:
    """Parameters stand changed in their modules, made anew for every forward pass that trains; put back afterwards.

    So they are for a state dict. They stay in place between passes, for gradient checkpointing reads them again on the
    way back, and `fingerprint` finds the base's own under ORIGINALS.
    """
    if not changes:
        yield None
        return
    stands = Patched(model, changes)
    handles = []
    try:
        model.base_model.__dict__[ORIGINALS] = stands.base
        stands.anew()
        for module in dict.fromkeys([model, model.base_model, *anatomy(model).entries.values()]):
            handles.append(module.register_forward_pre_hook(uncompiled(stands.enter), with_kwargs=True))
            handles.append(module.register_forward_hook(uncompiled(stands.leave), always_call=True))
            handles.append(module.register_state_dict_pre_hook(stands.read))
        with kept(model, stands.modules(), stands.told(), stands.anew):
            yield stands
    finally:
        for handle in handles:
            handle.remove()
        lost = None
        try:
            stands.follow()
            lost = stands.written()
        finally:
            stands.end()
            model.base_model.__dict__.pop(ORIGINALS, None)
        if lost is not None:
            warnings.warn(Note(lost), stacklevel=2)


def changed(base: dict[str, Tensor], changes: list[tuple[PatchDelta, Params]]) -> dict[str, Tensor]:
    """The parameters with all changes added, in float32 where they are stored in less."""
    values = dict(base)
    for spec, tensors in changes:
        for name, change in spec.patch(tensors).items():
            values[name] = added(spec, values[name], change)
    return values


def added(spec: PatchDelta, value: Tensor, change: Tensor) -> Tensor:
    """A parameter with a change added, in all of its rows or in those that the spec names.

    Changes lie where the embeddings are, which of a model that is split over GPUs is not where all parameters are.
    """
    change = change.to(value.device)
    if not spec.rows:
        return (value + change).to(value.dtype)
    rows = torch.tensor(spec.rows, device=value.device)
    return value.index_copy(0, rows, (value[rows] + change).to(value.dtype))
