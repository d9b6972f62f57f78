"""Less memory for the backward pass of a frozen model: activations that keep their input, and nothing else.

transformers' "gelu_new" (GPT-2, Phi, T5 1.1) is written out in eight steps, and torch keeps what each of them gave: in
GPT-2 that is the larger part of all that a training step holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import NewGELUActivation

ROWS = 64


@contextmanager
def lean_activations(model: nn.Module) -> Iterator[None]:
    """Within it, a backward pass through such an activation computes it again; its outputs are the same to the bit.

    An activation whose `forward` somebody has put another in place of is left as it is.
    """
    every = [module for module in model.modules() if type(module) is NewGELUActivation]
    found = [module for module in every if "forward" not in module.__dict__]
    try:
        for module in found:
            module.__dict__["forward"] = _leaner(module.forward)
        yield
    finally:
        for module in found:
            module.__dict__.pop("forward", None)


def _leaner(forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad) or _is_transformed():
            return forward(x)
        made: Tensor = _Again.apply(x, forward)  # type: ignore[no-untyped-call]
        return made

    return run


def _is_transformed() -> bool:
    """Within torch.func's transforms, or with tangents carried forward, which go through torch's own steps alone."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        if x.device.type != "cpu":
            return forward(x)
        parts = torch.split(x.flatten(0, -2), ROWS)  # its eight steps stay in the cache
        first = forward(parts[0])
        out = torch.empty(x.shape, dtype=first.dtype, device=x.device)
        for whole, part in zip(torch.split(out.flatten(0, -2), ROWS), parts, strict=True):
            whole.copy_(first if part is parts[0] else forward(part))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        exact = torch.promote_types(gradient.dtype, x.dtype)
        made = torch.ops.aten.gelu_backward(gradient.to(exact), x.to(exact), approximate="tanh")
        return made.to(x.dtype), None
