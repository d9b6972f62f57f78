"""How much of each head's attention goes to the context, and what it adds there (Petrov et al. 2024, section 4)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from tunescope.probes.seen import Layer, Seen, as_numbers, attention_map, summary, with_context
from tunescope.report.finding import AttentionMap, Finding, HeatMap


class PrefixBias(NamedTuple):
    """One layer's attention in two parts: head output = bias + content."""

    share: Tensor
    bias: Tensor
    content: Tensor
    pattern: Tensor


def prefix_bias(weights: Tensor, values: Tensor, n_context: int) -> PrefixBias:
    """Split one layer's attention into the part due to the context and the part due to the content.

    Exact: ``bias + content`` is the head output. ``pattern`` is what the layer would do with the same
    queries and keys and no context; it says nothing of later layers, whose inputs the bias has changed.
    It is NaN where a query sees no content at all.

    Args:
        weights: (batch, heads, query, n_context + content), after softmax, context first.
        values: (batch, heads, n_context + content, d), grouped heads already repeated.
        n_context: leading key positions that are context; 0 gives share = bias = 0.
    """
    on_context, on_content = weights[..., :n_context], weights[..., n_context:]
    return PrefixBias(
        share=on_context.sum(-1, keepdim=True),  # (batch, heads, query, 1)
        bias=on_context @ values[..., :n_context, :],  # (batch, heads, query, d)
        content=on_content @ values[..., n_context:, :],
        pattern=on_content / on_content.sum(-1, keepdim=True),  # (batch, heads, query, content)
    )


def look(seen: Seen) -> Finding:
    """The share of attention on the context, by layer and head, over all real positions.

    Raises UserError where nothing stands before the text.
    """
    layers = with_context("prefix_bias", seen)
    parts = {name: prefix_bias(layer.weights, layer.values, layer.n_context) for name, layer in layers.items()}
    share = {name: layer.at_real(parts[name].share[..., 0]) for name, layer in layers.items()}
    heads = {name: one.mean(-1) for name, one in share.items()}
    weight = {name: _bias_weight(layers[name], parts[name]) for name in layers}
    return Finding(
        heading="Attention on the context",
        says="The share of each head's attention that goes to the context (lambda), the mean over positions; the last "
        "column is the length of what the context adds to a head's output beside the length of what the text adds."
        + _more(share),
        not_said="A context with a share near 1 hides the text from that head; how much the task needs the text there, "
        "the share does not say. In its own layer a context only scales attention over the text, whatever its share.",
        columns=("layer", "share, least head", "share, mean", "share, most", "most at one position", "bias by content"),
        rows=[(name, *summary(heads[name]), float(share[name].max()), weight[name]) for name in layers],
        pictures=_pictures(seen, heads),
        numbers={
            name: {"n_context": layer.n_context, "share": heads[name].tolist(), "bias_by_content": weight[name]}
            for name, layer in layers.items()
        },
    )


def _more(share: dict[str, Tensor]) -> str:
    """What a share above 1 means; "" where none is."""
    most = max(float(one.max()) for one in share.values())
    if most <= 1 + 1e-6:
        return ""
    return (
        f" What is attached changes weights behind the softmax, which then need not sum to 1: shares reach {most:.2f}."
    )


def _pictures(seen: Seen, heads: dict[str, Tensor]) -> list[HeatMap | AttentionMap]:
    """All shares, and the head whose share is nearest to a half: both parts are seen there."""
    columns = [f"head {head}" for head in range(max(map(len, heads.values())))]
    half = {name: (one - 0.5).abs() for name, one in heads.items()}
    shown = min(half, key=lambda name: float(half[name].min()))
    return [
        HeatMap(
            "Share of attention on the context",
            list(heads),
            columns,
            as_numbers(list(heads.values())),
            high=max(1.0, *(float(one.max()) for one in heads.values())),
        ),
        attention_map(seen, "along", shown, int(half[shown].argmin())),
    ]


def _bias_weight(layer: Layer, parts: PrefixBias) -> float:
    """Root mean square of the bias, divided by that of the content's part."""
    bias, content = (layer.at_real(part).square().mean().sqrt() for part in (parts.bias, parts.content))
    return float(bias / content)
