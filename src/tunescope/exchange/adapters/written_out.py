"""Maps that the `adapters` library stores in parts, several layers sharing some, as the plain maps that they come to.

- Compacter (Karimi Mahabadi et al. 2021, arXiv:2106.04647, section 3): y = x H + b with H = sum_i kron(A_i, B_i), of an
  adapter's ways down and up; A and B may be products of factors, and may be shared.
- VeRA (Kopiczko et al. 2023, arXiv:2310.11454, section 3): a LoRA whose B is diag(b) B diag(d), with A and B shared.

What comes out is a bottleneck or a LoRA as any other, with more numbers than were trained there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.exchange.adapters.config import TENSORS

COMPACTER, VERA = "Compacter", "VeRA"
Tensors = dict[str, Tensor]


def written_out(configs: Sequence[Mapping[str, Any]], tensors: Tensors, name: str) -> tuple[Tensors, list[str]]:
    """The tensors with plain maps for those in parts, and a note on each kind that there was.

    Raises:
        UserError: a part is missing, or parts do not fit each other.
    """
    shared = {key: value for key, value in tensors.items() if f"shared_parameters.{name}." in key}
    parts = {key.rpartition(".")[2]: value for key, value in shared.items()}
    own = {key: value for key, value in tensors.items() if key not in shared}
    kinds = [
        (COMPACTER, rf"(.+\.adapters\.{re.escape(name)}\.adapter_(?:down\.\d+|up))\.(W|W_left|W_right|b|phm_rule.*)"),
        (VERA, rf"(.+\.loras\.{re.escape(name)})\.(vera_B|vera_D)"),
    ]
    notes = []
    for kind, pattern in kinds:
        if not any(_is(kind, config) for config in configs):
            continue
        stored = sum(map(torch.numel, tensors.values()))
        own = _replaced(_compacter if kind == COMPACTER else _vera, pattern, own, parts)
        notes.append(
            f"{kind}'s maps were written out: {sum(map(torch.numel, own.values())):,} numbers where {stored:,} are "
            "stored there; tuned further here, all of them are trained"
        )
    return own, notes


def _is(kind: str, config: Mapping[str, Any]) -> bool:
    if kind == COMPACTER:
        return bool(config.get("phm_layer"))
    return config.get("vera_d") is not None or config.get("vera_b") is not None


def _replaced(made: Callable[[str, Tensors], Tensors], pattern: str, own: Tensors, shared: Tensors) -> Tensors:
    """The tensors, with those of each module that the pattern finds replaced by what they and the shared ones make."""
    left, modules = {}, dict[str, Tensors]()
    for key, value in own.items():
        match = re.fullmatch(pattern, key)
        if match is None:
            left[key] = value
        else:
            modules.setdefault(match[1], {})[match[2]] = value
    for path, parts in modules.items():
        try:
            left |= made(path, {**shared, **parts})
        except KeyError as problem:
            raise UserError(f"{TENSORS}: {path!r} has no {problem.args[0]}: the file was altered or cut.") from None
        except (RuntimeError, ValueError) as problem:
            raise UserError(
                f"{TENSORS}: the parts of {path!r} do not fit each other: the file was altered."
            ) from problem
    return left


def _compacter(path: str, parts: Tensors) -> Tensors:
    """Weight (out, in) and bias (out,) of one way, from the rule A (n, p, q) and W (n, in / p, out / q)."""
    way = "up" if path.endswith("up") else "down"
    own = {name.replace(f"W_{way}", "W"): value for name, value in parts.items()}
    rule, each = _product(own, "phm_rule"), _product(own, "W")
    whole = torch.stack([torch.kron(a, w) for a, w in zip(rule, each, strict=True)]).sum(0)
    bias = own["b"] if "b" in own else whole.new_zeros(whole.shape[1])
    return {f"{path}.weight": whole.T.contiguous(), f"{path}.bias": bias}


def _product(parts: Tensors, name: str) -> Tensor:
    """A tensor that is stored as it is, or as left @ right."""
    if f"{name}_left" in parts:
        return torch.bmm(parts[f"{name}_left"], parts[f"{name}_right"])
    return parts[name]


def _vera(path: str, parts: Tensors) -> Tensors:
    """lora_A (r, in) as it is shared, and lora_B (out, r) with both of the layer's own scales."""
    return {
        f"{path}.lora_A": parts["lora_A"].clone(),
        f"{path}.lora_B": parts["vera_B"] @ parts["lora_B"] @ parts["vera_D"],
    }
