"""Tensors as Apple's GPU has them, of a CPU's numbers: there is no float64 before they are on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class OnApple(torch.Tensor):
    """It says that it is there, and refuses float64 as it does there."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        if func is torch.Tensor.cpu:
            return found.as_subclass(torch.Tensor)
        if isinstance(found, OnApple) and found.dtype == torch.float64:
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
            )
        return found


class SaysSo(OnApple):
    """Its device is named, too: nothing can be made there."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("mps")


@contextmanager
def on_apple(model: Any) -> Iterator[None]:
    """All that the model makes of its embeddings is there; its own numbers are in float32."""
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    hooks = [one.register_forward_hook(lambda _module, _given, out: out.as_subclass(OnApple)) for one in tables]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
