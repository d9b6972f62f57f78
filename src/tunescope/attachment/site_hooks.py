"""What `attach` does to a model for the time being, each as a context manager that undoes itself."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from tunescope.errors import UserError
from tunescope.methods.artifact import Params
from tunescope.models.fingerprint import REGISTERED
from tunescope.models.sites import Site, Tap

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.modeling_outputs import MaskedLMOutput


TEXT_IDS = "_tunescope_text_ids"  # and its ids, or None
TEXT_MASK = "_tunescope_text_mask"  # of an encoder that a context stands in: the text's own mask, (batch, length)


class Acting(Protocol):
    """What stands at a site: a `SiteDelta`, or several of them that act as one."""

    @property
    def reads(self) -> str: ...

    def apply(self, p: Params, x: Tensor, h: Tensor) -> Tensor: ...


A = TypeVar("A", bound=Acting, covariant=True)


@dataclass
class SiteUse(Generic[A]):
    """One delta at one site, with its tensors there."""

    spec: A
    site: Site
    tensors: Params


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter of the model itself asks for a gradient; afterwards each as before."""
    before = {}
    try:
        for name, parameter in _own(model):
            if parameter.is_inference():  # which asks for none, and cannot be told to
                continue
            before[name] = (weakref.ref(parameter), parameter.requires_grad)
            parameter.requires_grad_(False)
        yield
    finally:
        now = dict(_own(model))  # other tensors, where it was sharded meanwhile, or is in a pass
        for name, (frozen_one, asked) in before.items():
            for one in (frozen_one(), now.get(name)):
                if one is not None and one.is_leaf:
                    one.requires_grad_(asked)


def _own(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    named = nn.Module.named_parameters(model)
    return ((name, parameter) for name, parameter in named if not name.startswith(f"{REGISTERED}."))


@contextmanager
def acting(uses: Sequence[SiteUse[Acting]], is_training: Callable[[], bool]) -> Iterator[None]:
    """The deltas act at their sites: on linear maps first, then on whole blocks, each group in the order given."""
    handles: list[Any] = []
    blocks = [use for use in uses if not use.site.is_linear]
    carried = {id(use): threading.local() for use in uses}  # several threads may be in passes of one model
    try:
        for use in uses:
            if use.site.is_linear:
                handles.append(_act(use, carried[id(use)], is_training))
        for use in blocks:
            handles.append(_carry(use.site.source(use.spec.reads), carried[id(use)]))
        for use in blocks:
            handles.append(_act(use, carried[id(use)], is_training))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _carry(source: Tap, carried: threading.local) -> Any:
    """What is read here stays in `carried`, until `_taken` from it in the same pass."""
    if source.end == "in":

        def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            carried.x = source.read(args[0] if args else next(iter(kwargs.values())))  # a block may be given names

        return source.module.register_forward_pre_hook(before, with_kwargs=True)

    def after(_module: nn.Module, _args: object, output: Tensor) -> None:
        carried.x = source.read(output)

    return source.module.register_forward_hook(after)


def _taken(carried: threading.local) -> Tensor:
    x: Tensor = carried.x
    carried.x = None  # nothing holds it on
    return x


def _act(use: SiteUse[Acting], carried: threading.local, is_training: Callable[[], bool]) -> Any:
    target = use.site.h
    resting, is_linear = _without_dropout(use.spec), use.site.is_linear
    behind = use.site.residual.output() if use.site.residual is not None and use.spec.reads == "stream behind" else None

    def changed(x: Tensor, whole: Tensor) -> Tensor:
        h = target.read(whole)
        spec = use.spec if is_training() else resting
        x = x if behind is None else behind(h, x)
        common = torch.promote_types(x.dtype, h.dtype)  # T5 keeps one map in float32 where the rest is in half
        made = spec.apply(as_computed(use.tensors, x.to(common)), x.to(common), h.to(common))
        return target.write(whole, made.to(h.dtype))

    if target.end == "in":

        def before(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            return (changed(_taken(carried), args[0]), *args[1:])

        return target.module.register_forward_pre_hook(before)

    def after(_module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, tuple):  # of experts, which say where they sent each token
            return (changed(_taken(carried), output[0]), *output[1:])
        return changed(args[0] if is_linear else _taken(carried), output)

    return target.module.register_forward_hook(after)


def _without_dropout(spec: Acting) -> Acting:
    return replace(spec, dropout=0.0) if "dropout" in {field.name for field in fields(spec)} else spec  # type: ignore[type-var, arg-type]


def as_computed(tensors: Params, like: Tensor) -> Params:
    """The tensors where the computation is, and in its precision; under autocast torch chooses that by itself."""
    if torch.is_autocast_enabled(like.device.type):
        return {name: value.to(like.device) for name, value in tensors.items()}
    return {name: value.to(like) for name, value in tensors.items()}


def trains(*groups: Params) -> bool:
    """Whether a gradient is asked of any of the tensors now."""
    return torch.is_grad_enabled() and are_tuned(*groups)


def are_tuned(*groups: Params) -> bool:
    """Whether any of the tensors is being tuned: it may be written through `.data` then, which counts no version."""
    return any(value.requires_grad for group in groups for value in group.values())


def computed_in(device: str) -> torch.dtype | None:
    """The type that autocast computes in now on a kind of device; None where it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def refuse_tuple(output: object) -> None:
    """UserError for the output of a call with return_dict=False, whose parts have no names."""
    if isinstance(output, tuple):
        raise UserError("What is attached reads the output by name: leave return_dict=False out, and take outputs[0].")


@contextmanager
def logits_at(model: PreTrainedModel, where: Tensor) -> Iterator[None]:
    """Within it, the language-model head is computed only where `where` (batch, length) is True.

    `model(...).logits` is then (where.sum(), vocabulary), in row-major order of `where`: nothing is spent on
    positions that carry no label. Where the model takes the head's weights and does not call it, as MobileBERT, they
    are computed everywhere and then taken.
    """
    called: list[nn.Module] = []

    def select(head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        called.append(head)
        return (args[0][where.to(args[0].device)], *args[1:])

    def take(_model: nn.Module, _args: object, output: MaskedLMOutput) -> None:
        if not called:
            output.logits = output.logits[where.to(output.logits.device)]
        called.clear()

    handles = [model.get_output_embeddings().register_forward_pre_hook(select), model.register_forward_hook(take)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
