"""What is said of a family that computes attention by itself, the finder of those files, and how ours comes in.

Such a family does not ask transformers' attention interface. For the time being the methods that compute its attention
are others, which call the one attention function: attributes of the instances, taken away afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from tunescope.attachment.attention.function import NAME
from tunescope.system import plugins

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER = "attachment.own_attention"


class StandIn(NamedTuple):
    """A method of a module, by name, and the function that stands in for it, called as the bound method is."""

    module: nn.Module
    method: str
    function: Callable[..., Any]


@dataclass(frozen=True)
class OwnAttention:
    """stand_ins: a model's, all that are needed for its attention to be ours; it may raise UserError.

    reference: which of transformers' implementations of the family is right, "eager" or "sdpa".
    """

    stand_ins: Callable[[nn.Module], Sequence[StandIn]]
    reference: str = "eager"


@cache
def find_own(model_type: str) -> OwnAttention | None:
    """The file of that `model_type`; None where there is none, as for all that use transformers' interface."""
    if model_type not in plugins.names(FOLDER):
        return None
    own: OwnAttention = plugins.load(FOLDER, model_type).OWN
    return own


def reference(model: PreTrainedModel) -> str:
    """The implementation of transformers' that ours is held against."""
    own = find_own(model.config.model_type)
    return "eager" if own is None else own.reference


def of_class(model: nn.Module, name: str) -> list[Any]:
    """The modules of a class of that name, or of one that inherits from it."""
    return [one for one in model.modules() if any(base.__name__ == name for base in type(one).__mro__)]


def dropped(dropout: nn.Dropout) -> float:
    """The share that it leaves out now."""
    return dropout.p if dropout.training else 0.0


@contextmanager
def stood_in(model: PreTrainedModel, own: OwnAttention, to: str) -> Iterator[None]:
    """Within it the model's attention is the one named, ours or the family's; afterwards as before.

    Transformers refuses to set it for such a family, so it is set here.
    """
    config, before = model.config, model.config._attn_implementation
    places = own.stand_ins(model) if NAME in (before, to) else ()
    held = [one.module.__dict__.get(one.method) for one in places]
    try:
        for module, method, function in places:  # to another than ours, within ours: the class's method itself
            module.__dict__[method] = function if to == NAME else getattr(type(module), method).__get__(module)
        config._attn_implementation = to
        yield
    finally:
        config._attn_implementation = before
        for (module, method, _), was in zip(places, held, strict=True):
            module.__dict__.pop(method, None)
            if was is not None:
                module.__dict__[method] = was
