"""How far two recorded runs of a model, bare and with a prefix, are from the laws of the first attention layer.

Behind the first layer inputs differ too, so no law is claimed there: how far patterns moved is measured apart.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tunescope.probes.looks.pattern import pattern
from tunescope.reproduce.recipes._largest import largest

KEPT = ("scores", "weights", "output", "context_value")
FIRST = ("encoder.0.self", "decoder.0.self")
Kept = Mapping[str, Tensor]


class Deviation(NamedTuple):
    """Largest deviations from the two laws over all heads and real positions, and the attention on the prefix.

    pattern: of A[text] from A_bare (1 - share); alone: of the pattern over the text alone, made in float64 from the
    scores; output: of t from bias + (1 - share) t_bare; entry: the largest entry of t.
    """

    pattern: float
    alone: float
    output: float
    entry: float
    share_least: float
    share_most: float


def compared(bare: Sequence[Kept], attached: Sequence[Kept], real: Sequence[Kept]) -> dict[str, Any]:
    """{"first": {module: Deviation as a dict}, "moved": {module: [mean, most]}} over batches.

    Args:
        bare, attached: what `record` kept of every batch, under the names KEPT.
        real: stack -> (batch, query), False at padding.
    """
    first, moved = {}, {}
    for name in dict.fromkeys(key.rpartition(".")[0] for key in bare[0]):
        runs = [
            (_exactly(name, before), _exactly(name, after), mask[name.split(".")[0]])
            for before, after, mask in zip(bare, attached, real, strict=True)
        ]
        if name in FIRST:
            first[name] = _worst([deviation(*run) for run in runs])._asdict()
        else:
            total = torch.cat([_moved(*run) for run in runs])
            moved[name] = [float(total.mean()), float(total.max())]
    return {"first": first, "moved": moved}


def deviation(bare: Kept, attached: Kept, real: Tensor) -> Deviation:
    """How far one attention module's two runs are from the laws, at the real queries. Nothing is divided by 1 - share.

    Args:
        bare, attached: scores and weights (batch, heads, query, [n] + text), output (batch, heads, query, d),
            context_value (kv_heads, n, d).
        real: (batch, query), False at padding.
    """
    values = attached["context_value"]
    n_context, heads = values.shape[1], attached["weights"].shape[1]
    on_context, on_text = attached["weights"].tensor_split([n_context], -1)
    share = on_context.sum(-1, keepdim=True)
    bias = on_context @ values.repeat_interleave(heads // len(values), 0)
    alone = attached["scores"][..., n_context:].softmax(-1) - bare["scores"].softmax(-1)

    def at_real(value: Tensor) -> Tensor:
        return value.transpose(1, 2)[real]

    return Deviation(
        pattern=float(at_real(on_text - bare["weights"] * (1 - share)).abs().max()),
        alone=float(at_real(alone).abs().max()),
        output=float(at_real(attached["output"] - bias - (1 - share) * bare["output"]).abs().max()),
        entry=float(at_real(attached["output"]).abs().max()),
        share_least=float(at_real(share).min()),
        share_most=float(at_real(share).max()),
    )


def _exactly(name: str, kept: Kept) -> dict[str, Tensor]:
    return {which: kept[f"{name}.{which}"].double() for which in KEPT}


def _worst(found: Sequence[Deviation]) -> Deviation:
    least = -largest(-one.share_least for one in found)
    return Deviation(*(largest(each) for each in zip(*found, strict=True)))._replace(share_least=least)


def _moved(bare: Kept, attached: Kept, real: Tensor) -> Tensor:
    """Total variation over the text, at every head and real query."""
    n_context = attached["scores"].shape[-1] - bare["scores"].shape[-1]
    pair = bare["scores"].softmax(-1), attached["scores"][..., n_context:].softmax(-1)
    return pattern(*pair).total_variation.transpose(1, 2)[real].flatten()
