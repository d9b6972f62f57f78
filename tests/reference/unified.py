"""He et al. (2022), Table 1, and the papers behind it: what each method makes of x and h, term by term, slowly."""

from collections.abc import Callable

import torch
from torch import Tensor

Active = Callable[[Tensor], Tensor]


def relu(x: Tensor) -> Tensor:
    return x * (x > 0)


def softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def silu(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution's probability of less than x (Hendrycks & Gimpel 2016)."""
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + eps) ** 0.5 * weight + bias


def lora(x: Tensor, h: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """h + (alpha / r) x A^T B^T."""
    return h + alpha / len(a) * (x @ a.T) @ b.T


def bottleneck(source: Tensor, p: dict[str, Tensor], active: Active = relu) -> Tensor:
    return active(source @ p["down"].T + p["down_bias"]) @ p["up"].T + p["up_bias"]


def sequential(x: Tensor, h: Tensor, p: dict[str, Tensor], scale: float = 1.0) -> Tensor:
    """h + s f(h W_down) W_up."""
    return h + scale * bottleneck(h, p)


def parallel(x: Tensor, h: Tensor, p: dict[str, Tensor], scale: float = 1.0) -> Tensor:
    """h + s f(x W_down) W_up."""
    return h + scale * bottleneck(x, p)


def multi_head(query: Tensor, heads: Tensor, p: dict[str, Tensor], scale: float = 1.0, active: Active = relu) -> Tensor:
    """Head i: h_i + s f(q_i P_k,i^T) P_v,i, with P_k the down- and P_v the up-projection."""
    n_heads, _, width = p["down"].shape
    out = heads.clone()
    for i in range(n_heads):
        at = slice(i * width, (i + 1) * width)
        out[..., at] = heads[..., at] + scale * active(query[..., at] @ p["down"][i].T) @ p["up"][i].T
    return out


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None) -> Tensor:
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if visible is not None:
        scores = torch.where(visible, scores, -torch.inf)
    return torch.softmax(scores, -1) @ value


def gated_prefix(
    query: Tensor, key: Tensor, value: Tensor, p_key: Tensor, p_value: Tensor, visible: Tensor | None = None
) -> Tensor:
    """(1 - lambda) Attn(q, K, V) + lambda Attn(q, P_k, P_v), lambda the prefix's part of the whole softmax mass."""
    on_prefix = (query @ p_key.mT / query.shape[-1] ** 0.5).exp().sum(-1, keepdim=True)
    on_text = query @ key.mT / query.shape[-1] ** 0.5
    if visible is not None:
        on_text = torch.where(visible, on_text, -torch.inf)
    gate = on_prefix / (on_prefix + on_text.exp().sum(-1, keepdim=True))
    return (1 - gate) * attend(query, key, value, visible) + gate * attend(query, p_key, p_value)
