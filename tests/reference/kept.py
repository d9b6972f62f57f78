"""Attention with only some of the demonstrations' columns left for what follows: plain loops, and not our code.

The whole text is one pass. Demonstrations read one another as always; what follows sees of them the kept columns alone.
Where tokens stand is given, and a window is one of positions. The model's masks are not used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

STATE: dict[str, Any] = {}


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    rows, heads, length, _ = query.shape
    per_group = heads // key.shape[1]
    out = query.new_zeros(rows, heads, length, value.shape[3])
    for row in range(rows):
        for head in range(heads):
            k, v = key[row, head // per_group], value[row, head // per_group]
            for i in range(length):
                seen = [j for j in range(i + 1) if is_seen(i, j, kwargs.get("sliding_window"))]
                scores = torch.stack([scaling * (query[row, head, i] * k[j]).sum() for j in seen])
                if kwargs.get("softcap") is not None:
                    scores = kwargs["softcap"] * torch.tanh(scores / kwargs["softcap"])
                weights = torch.exp(scores - scores.max())
                weights = weights / weights.sum()
                for weight, j in zip(weights, seen, strict=True):
                    out[row, head, i] += weight * v[j]
    return out.transpose(1, 2).contiguous(), None


def is_seen(i: int, j: int, window: int | None) -> bool:
    if window is not None and STATE["stands"][i] - STATE["stands"][j] >= window:
        return False
    return i < STATE["length"] or j >= STATE["length"] or j in STATE["keep"]


AttentionInterface.register("kept", attention)
AttentionMaskInterface.register("kept", eager_mask)


@contextmanager
def _only(model: Any, keep: Sequence[int], length: int, stands: Sequence[int]) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("kept")
    STATE.update(keep=set(keep), length=length, stands=list(stands))
    try:
        yield
    finally:
        STATE.clear()
        model.set_attn_implementation(before)


def logits(model: Any, demonstrations: Tensor, query: Tensor, keep: Sequence[int], begins: int) -> Tensor:
    """(query, vocabulary), for one query (n,) that begins at position `begins` behind demonstrations (m,)."""
    m, n = len(demonstrations), len(query)
    stands = [*range(m), *range(begins, begins + n)]
    with _only(model, keep, m, stands), torch.no_grad():
        out = model(
            input_ids=torch.cat([demonstrations, query])[None], position_ids=torch.tensor([stands]), use_cache=False
        )
    return out.logits[0, m:]
