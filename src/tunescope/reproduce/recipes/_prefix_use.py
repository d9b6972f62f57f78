"""How a prefix is used: how attention is spread over it, and in how many directions its bias varies over inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tunescope.attachment.attention.record import record
from tunescope.models.anatomy import anatomy
from tunescope.probes.looks.subspace import subspace
from tunescope.probes.see import exact_weights
from tunescope.tasks.answers.batches import padded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOGETHER = 16  # inputs of one recorded run


class Use(NamedTuple):
    """One attention module, over inputs, one number a head but for `spread` (heads, n_context).

    spread: 99th less 1st percentile over inputs of the attention on each prefix position, renormalised over the prefix;
    share: attention on the prefix; effective_rank and rank: of the bias over inputs; span: rank of the prefix's values.
    """

    spread: Tensor
    share: Tensor
    effective_rank: Tensor
    rank: Tensor
    span: Tensor


def prefix_use(model: PreTrainedModel, inputs: Sequence[Sequence[int]]) -> dict[str, Use]:
    """ "decoder.0.self" -> Use of the prefix that is attached, at one position of each input.

    That position is the last of the input, or the first of an encoder's, where its head reads.
    """
    kept: dict[str, list[tuple[Tensor, Tensor]]] = {}
    values: dict[str, Tensor] = {}
    for start in range(0, len(inputs), TOGETHER):
        rows = inputs[start : start + TOGETHER]
        place = [0 if anatomy(model).kind == "encoder" else len(row) - 1 for row in rows]
        ids, mask = padded(rows, 0, model.device, left=False)
        run = record(model, {"input_ids": ids, "attention_mask": mask}, "scores", "weights", "sink", "context_value")
        for name in dict.fromkeys(key.rpartition(".")[0] for key in run):
            values[name] = run[f"{name}.context_value"]
            scores, made, sink = (run[f"{name}.{kept_as}"] for kept_as in ("scores", "weights", "sink"))
            here, n_context = (torch.arange(len(rows)), slice(None), place), values[name].shape[1]
            weights = exact_weights(scores, made, sink)[here]  # (batch, heads, keys)
            among = scores.double()[here][..., :n_context].softmax(-1)
            kept.setdefault(name, []).append((weights[..., :n_context], among))
    found = {}
    for name, pairs in kept.items():
        weights, among = (torch.cat(each) for each in zip(*pairs, strict=True))
        found[name] = use(weights, among, values[name])
    return found


def use(weights: Tensor, among: Tensor, values: Tensor) -> Use:
    """Use, from what was recorded of one attention module.

    Args:
        weights: (inputs, heads, n_context), attention on the prefix.
        among: the same, renormalised over the prefix.
        values: (kv_heads, n_context, d), of the prefix.
    """
    made_in, values = values.dtype, values.double().repeat_interleave(weights.shape[1] // len(values), 0)
    low, high = among.quantile(torch.tensor([0.01, 0.99], dtype=among.dtype), 0)
    found = subspace(weights.transpose(0, 1) @ values, values, made_in)
    return Use(high - low, weights.sum(-1).mean(0), found.effective_rank, found.rank, found.span)


def as_json(found: Mapping[str, Use]) -> dict[str, dict[str, Any]]:
    """The same as lists, to five digits."""
    return {
        name: {key: value.double().mul(1e5).round().div(1e5).tolist() for key, value in one._asdict().items()}
        for name, one in found.items()
    }
