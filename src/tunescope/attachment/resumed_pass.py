"""Passes that are alike below a layer: what entered it is kept from one, and the others begin there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tunescope.attachment.attention.reach import reached

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def plain_layers(model: PreTrainedModel) -> list[nn.Module] | None:
    """The layers of a decoder, by depth; None where they are no list with one attention in each, in its order."""
    attention = [found.module for found in reached(model) if found.name.startswith("decoder.")]
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == len(attention):
            layers = list(module)
            if all(own in set(layer.modules()) for layer, own in zip(layers, attention, strict=True)):
                return layers
    return None


class Passes:
    """Of batches that are passed again and again what entered some of the layers, at the first pass."""

    def __init__(self, layers: Sequence[nn.Module], at: Sequence[int]) -> None:
        self._layers, self._at = layers, sorted({layer for layer in at if 0 < layer < len(layers)})
        self._entered: dict[tuple[int, int], Tensor] = {}
        self._in_a_tuple = False

    @contextmanager
    def keeping(self, batch: int) -> Iterator[None]:
        """A whole pass of this batch, from which the states are kept."""

        def keep(layer: int) -> Callable[..., None]:
            def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                self._entered[batch, layer] = args[0] if args else kwargs["hidden_states"]

            return enter

        def left(_module: nn.Module, _args: object, output: object) -> None:
            self._in_a_tuple = isinstance(output, tuple)

        with ExitStack() as hooks:
            for layer in self._at:
                handle = self._layers[layer].register_forward_pre_hook(keep(layer), with_kwargs=True)
                hooks.callback(handle.remove)
            hooks.callback(self._layers[0].register_forward_hook(left).remove)
            yield

    @contextmanager
    def begun_at(self, batch: int, layer: int) -> Iterator[None]:
        """A pass of this batch in which the layers below do nothing, and the layer is given what was kept."""
        state = self._entered[batch, layer]

        def skip(*_args: object, **_kwargs: object) -> Any:
            return (state,) if self._in_a_tuple else state

        before = [(module, vars(module).get("forward")) for module in self._layers[:layer]]
        for module, _ in before:
            module.forward = skip
        try:
            yield
        finally:
            for module, own in before:
                del module.forward
                if own is not None:
                    module.forward = own
