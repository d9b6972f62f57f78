"""The network that makes a prefix's or an infix's keys and values while they train (Li & Liang 2021, section 4.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.methods.artifact import Base, LayerShape, Params

FIT_STEPS, FIT_RATE = 500, 1e-4  # of Adam, as in the authors' code


def shapes(base: Base, length: int, width: int) -> dict[str, tuple[int, ...]]:
    """Embedding (length, width of a token) -> tanh -> all layers' keys and values, for each kind of attention."""
    if width < 1:
        raise UserError(f"mlp={width} is no width of a network: give 1 or more, or leave it out to train without one.")
    sets: dict[str, dict[str, LayerShape]] = {}
    for name, layer in base.layers.items():
        stack, _, which = name.split(".")
        sets.setdefault(f"{stack}.{which}", {})[name] = layer
    found: dict[str, tuple[int, ...]] = {}
    for group, layers in sets.items():
        found |= {
            f"{group}.embedding": (length, base.width),
            f"{group}.down": (width, base.width),
            f"{group}.down_bias": (width,),
        }
        for name, layer in layers.items():
            for which, d in (("key", layer.d_key), ("value", layer.d_value)):
                found[f"{name}.{which}.up"] = (layer.kv_heads, d, width)
                found[f"{name}.{which}.up_bias"] = (layer.kv_heads, d)
    return found


def begun(shapes: dict[str, tuple[int, ...]]) -> Params:
    """The network's tensors as torch begins nn.Embedding and nn.Linear."""
    return {name: _weight(name, shape) for name, shape in shapes.items()}


def output(p: Params) -> Params:
    """The keys and values that the network makes."""
    made: Params = {}
    for name in [name for name in p if name.endswith(".embedding")]:
        made |= _unroll(p, name.removesuffix(".embedding"))
    return made


def fitted(p: Params, wanted: Params) -> Params:
    """The network's tensors after FIT_STEPS on the mean squared difference of all it makes from what is wanted."""
    count = sum(value.numel() for value in wanted.values())
    trained = {name: value.clone().requires_grad_() for name, value in p.items()}
    optimizer = torch.optim.Adam(trained.values(), FIT_RATE)
    with torch.enable_grad():
        for _ in range(FIT_STEPS):
            made = output(trained)
            loss = torch.stack([((made[name] - value) ** 2).sum() for name, value in wanted.items()]).sum() / count
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return {name: value.detach() for name, value in trained.items()}


def _weight(name: str, shape: tuple[int, ...]) -> Tensor:
    if name.endswith(".embedding"):
        return torch.randn(shape)
    if name.endswith("_bias"):
        return torch.zeros(shape)
    return (2 * torch.rand(shape) - 1) / math.sqrt(shape[-1])


def _unroll(p: Params, group: str) -> Params:
    hidden = torch.tanh(p[f"{group}.embedding"] @ p[f"{group}.down"].T + p[f"{group}.down_bias"])
    stack, which = group.split(".")
    made = {}
    for name in p:
        if name.endswith(".up") and name.startswith(f"{stack}.") and name.split(".")[2] == which:
            target = name.removesuffix(".up")
            made[target] = torch.einsum("nw,hdw->hnd", hidden, p[name]) + p[f"{name}_bias"][:, None]
    return made
