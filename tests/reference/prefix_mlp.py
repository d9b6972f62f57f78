"""Li & Liang (2021), section 4.3: P[i] = MLP(P'[i]); one embedding and one tanh layer for each kind of attention."""

import torch
from torch import Tensor


def keys_values(p: dict[str, Tensor], length: int) -> dict[str, Tensor]:
    """Every key and value of the prefix, one number at a time in its last axis."""
    made = {}
    for name in p:
        if not name.endswith(".up"):
            continue
        stack, _, kind, _, _ = name.split(".")
        up, up_bias = p[name], p[f"{name}_bias"]
        heads, width, _ = up.shape
        out = torch.zeros(heads, length, width, dtype=up.dtype)
        for i in range(length):
            inner = torch.tanh(
                p[f"{stack}.{kind}.down"] @ p[f"{stack}.{kind}.embedding"][i] + p[f"{stack}.{kind}.down_bias"]
            )
            for head in range(heads):
                out[head, i] = up[head] @ inner + up_bias[head]
        made[name.removesuffix(".up")] = out
    return made
