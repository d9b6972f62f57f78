"""Where attention goes that looks at nothing in particular: to a text's first token, or to a prefix in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attention.record import record

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEHIND = 8  # queries that stand behind so many tokens of their text are read


def sinks(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Of the model as it is, in texts of one length, a list by layer each.

    on_first: attention on the first token, a number a head, the mean over texts and queries behind the eighth token.
    on_second: that on the second, the mean over heads.
    key_norm, value_norm: the length of the first token's key and value by the mean length of the others', over heads.
    key_outlier: of the others' keys, the largest root mean square of a dimension by that of the median dimension.
    """
    run = record(model, _batch(model, texts), "weights", "key", "value")
    found: dict[str, list[Any]] = {name: [] for name in ("on_first", "on_second", *NORMS, "key_outlier")}
    for name in dict.fromkeys(key.rpartition(".")[0] for key in run):
        weights, key, value = (run[f"{name}.{kept}"].double() for kept in ("weights", "key", "value"))
        at = weights[:, :, BEHIND:].mean((0, 2))  # (heads, keys)
        found["on_first"].append([_short(one) for one in at[:, 0]])
        found["on_second"].append(_short(at[:, 1].mean()))
        for kept, one in zip(NORMS, (key, value), strict=True):
            length = one.norm(dim=-1)
            found[kept].append(_short(length[:, :, 0].mean() / length[:, :, 1:].mean()))
        size = key[:, :, 1:].square().mean((0, 2)).sqrt()  # (kv_heads, d)
        found["key_outlier"].append(_short((size.amax(-1) / size.median(-1).values).max()))
    return found


NORMS = ("key_norm", "value_norm")


def destinations(model: PreTrainedModel, texts: Sequence[Sequence[int]], n_context: int) -> dict[str, Any]:
    """With a prefix attached, in texts of one length: means over layers, heads, texts and queries as in `sinks`.

    positions: attention on each position of the prefix. first: that on the text's first token. by_layer: of each layer
    (on the whole prefix, on its first position, on the text's first token).
    """
    run = record(model, _batch(model, texts), "weights")
    layers = torch.stack([weights.double()[:, :, BEHIND:].mean((0, 1, 2)) for weights in run.values()])
    prefix, first = layers[:, :n_context], layers[:, n_context]
    of_layer = zip(prefix.sum(-1), prefix[:, :1].sum(-1), first, strict=True)
    return {
        "positions": [_short(one) for one in prefix.mean(0)],
        "first": _short(first.mean()),
        "by_layer": [[_short(one) for one in row] for row in of_layer],
    }


def _batch(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    ids = torch.tensor([list(one) for one in texts], device=model.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _short(value: Tensor) -> float:
    return float(f"{float(value):.5g}")
