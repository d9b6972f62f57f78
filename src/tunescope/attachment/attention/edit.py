"""Change what attention modules attend to, for the time being."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tunescope.attachment.attention.function import STATE, Edit, LayerState
from tunescope.attachment.attention.reach import reached, switched
from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def editing(model: PreTrainedModel, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Within it the attention modules named ("decoder.0.self") are changed; afterwards they are as before.

    It acts on top of whatever is attached, after edits that are there already. An edit of a module that also runs a
    context's own tokens does not reach those: they are run before the text.

    Raises UserError for a name that the model does not have, and for a family whose attention is not reached.
    """
    places = {found.name: found.module for found in reached(model)}
    unknown = sorted(set(edits) - set(places))
    if unknown:
        raise UserError(f"No attention module {unknown[0]!r}; this model has {', '.join(places)}.")
    bare = [places[name] for name in edits if STATE not in places[name].__dict__]
    before = {name: places[name].__dict__.get(STATE, LayerState()).edits for name in edits}
    try:
        for name, edit in edits.items():
            state = places[name].__dict__.setdefault(STATE, LayerState())
            state.edits = (*state.edits, edit)
        with switched(model):
            yield
    finally:
        for name, edits_before in before.items():
            places[name].__dict__[STATE].edits = edits_before
        for module in bare:
            del module.__dict__[STATE]


def watching(told: Callable[[Tensor, Tensor], None]) -> Edit:
    """An edit that changes nothing: in a backward pass `told` is given the weights and the gradient of them.

    Where nothing before the weights asks for a gradient, the graph begins at them.
    """

    def watched(weights: Tensor, _kwargs: dict[str, Any]) -> Tensor:
        weights = weights if weights.requires_grad else weights.requires_grad_()
        held = weights.detach()
        weights.register_hook(lambda gradient: told(held, gradient))  # type: ignore[no-untyped-call]
        return weights

    return Edit(weights=watched)
