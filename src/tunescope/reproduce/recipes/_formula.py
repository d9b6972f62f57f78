"""A formula as text, computed literally: the notation in which methods say what they add (`tunescope.methods.form`).

    ReLU(h @ down.T + down_bias) @ up.T + up_bias
    softmax(score(q[i], key[i])) @ value[i]

Operators + - * / @ and .T; ReLU, SiLU, GELU; softmax and LN over the last axis; join along the text. `[i]` takes head
i: of a tensor of the method its first axis, of all else its columns; a formula with it is computed head by head and
the results are put side by side. No method's code is called, and Python evaluates nothing.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Function = Callable[..., Tensor]
OPERATORS: dict[type[ast.operator], Callable[[object, object], Tensor]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
}


@dataclass(frozen=True)
class Names:
    """What a formula's names stand for.

    seen: (..., width), what passes in the model; tensors: the method's own; functions: more than the usual ones.
    n_heads: how many parts `[i]` takes.
    """

    seen: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]
    n_heads: int = 1
    functions: Mapping[str, Function] | None = None


def computed(text: str, names: Names) -> Tensor:
    """The value of a formula; ValueError for what is not of the notation, KeyError for an unknown name."""
    tree = ast.parse(text, mode="eval").body
    if not any(isinstance(node, ast.Subscript) for node in ast.walk(tree)):
        return _tensor(tree, names, 0)
    return torch.cat([_tensor(tree, names, head) for head in range(names.n_heads)], -1)


def _tensor(node: ast.expr, names: Names, head: int) -> Tensor:
    value = _value(node, names, head)
    if not isinstance(value, Tensor):
        raise ValueError(f"{ast.unparse(node)!r} is a number where a tensor is meant.")
    return value


def _value(node: ast.expr, names: Names, head: int) -> Tensor | float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return names.tensors[name] if name in names.tensors else names.seen[name]
        case ast.Attribute(value=inner, attr="T"):
            return _tensor(inner, names, head).mT
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id="i")) if name in names.tensors:
            return names.tensors[name][head]
        case ast.Subscript(value=inner, slice=ast.Name(id="i")):
            return _tensor(inner, names, head).chunk(names.n_heads, -1)[head]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, names, head), _value(right, names, head))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]):
            known = FUNCTIONS | dict(names.functions or {})
            return known[name](*(_tensor(one, names, head) for one in given))
    raise ValueError(f"{ast.unparse(node)!r} is not of the notation of formulas.")


def _relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.0)


def _silu(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def _gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def _softmax(x: Tensor) -> Tensor:
    raised = (x - x.max(-1, keepdim=True).values).exp()
    return raised / raised.sum(-1, keepdim=True)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def _join(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first.expand(*second.shape[:-2], *first.shape[-2:]), second], -2)


FUNCTIONS: dict[str, Function] = {
    "ReLU": _relu,
    "SiLU": _silu,
    "GELU": _gelu,
    "softmax": _softmax,
    "LN": _layer_norm,
    "join": _join,
}
