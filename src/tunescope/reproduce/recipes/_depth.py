"""What is attached does to attention over the text: by layer, and by how much text there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tunescope.attachment.attention.record import record
from tunescope.probes.looks.pattern import pattern
from tunescope.probes.looks.prefix_bias import prefix_bias
from tunescope.probes.see import see
from tunescope.probes.seen import Layer, finite, summary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tunescope.attachment.attached import Attached


def by_layer(model: PreTrainedModel, tuned: Attached, batch: Mapping[str, Any]) -> list[dict[str, float]]:
    """One dict an attention module, in order of depth; means over heads and real positions of the batch.

    held, held_most: how far attention over the text moved with the module's inputs as in the bare model (total
    variation), and the most at one query of one head. Of a context it is 0 but for rounding: an identity.
    along: the same distance between two whole runs, whose inputs differ: a measurement.
    along_behind_first: that, where the first token of the text is left out of both patterns.
    share, bias_by_content: attention on the context, and the length of what it adds to a head's output by that of
    what the text adds; only where there is a context.
    """
    seen = see(model, tuned, batch)
    return [_of(seen.bare[name], seen.held[name], layer) for name, layer in seen.along.items()]


def _of(bare: Layer, held: Layer, along: Layer) -> dict[str, float]:
    own = summary(_moved(bare, held, 0))
    found = {
        "held": _short(own[1]),
        "held_most": _short(own[2]),
        "along": _short(summary(_moved(bare, along, 0))[1]),
        "along_behind_first": _short(summary(_moved(bare, along, 1))[1]),
    }
    if not along.n_context:
        return found
    parts = prefix_bias(along.weights, along.values, along.n_context)
    share, bias, content = (along.at_real(part) for part in (parts.share, parts.bias, parts.content))
    length = bias.square().mean().sqrt() / content.square().mean().sqrt()
    return found | {"share": _short(float(share.mean())), "bias_by_content": _short(float(length))}


def _moved(before: Layer, after: Layer, first: int) -> Tensor:
    """Total variation at every head and real query, over the text from its token `first` on."""
    patterns = (layer.weights[..., layer.n_context + first :] for layer in (before, after))
    return after.at_real(pattern(*patterns).total_variation)


def by_length(
    model: PreTrainedModel, tuned: Attached, texts: Sequence[Sequence[int]], lengths: Sequence[int]
) -> dict[str, dict[str, list[float]]]:
    """Length -> "share", "along" and "log_odds", a number a layer, at the queries that see that much of the text.

    share and along are those of `by_layer`; log_odds: of the share, log(share / (1 - share)), where it is finite. Where
    there is no context, along alone.

    A query of a causal decoder sees what stands before it alone, so one long text has all lengths in it: n is that of
    the queries that see more than 7/8 n and at most n tokens, their own among them.
    """
    places = {length: slice(length - max(1, length // 8), length) for length in lengths}
    kept: dict[int, list[list[dict[str, float]]]] = {length: [] for length in lengths}  # of every text, its layers
    for text in texts:
        given = {"input_ids": torch.tensor([text], device=model.device)}
        with tuned.paused():
            bare = {name: one[0].double() for name, one in record(model, given, "weights").items()}
        along = {name: one[0].double() for name, one in record(model, given, "weights").items()}
        for length, place in places.items():
            kept[length].append([_at(bare[name][:, place], one[:, place]) for name, one in along.items()])
    return {str(length): _means(of_texts) for length, of_texts in kept.items()}


def _means(of_texts: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, list[float]]:
    """Name -> a number a layer, the mean over texts."""
    names, layers = of_texts[0][0], range(len(of_texts[0]))
    return {name: [_short(fmean(one[layer][name] for one in of_texts)) for layer in layers] for name in names}


def _at(before: Tensor, after: Tensor) -> dict[str, float]:
    """Of one layer. before: (heads, query, content) of the bare model; after: (heads, query, n_context + content)."""
    n_context = after.shape[-1] - before.shape[-1]
    context, content = after[..., :n_context].sum(-1), after[..., n_context:].sum(-1)
    moved, odds = pattern(before, after[..., n_context:]).total_variation, context.log() - content.log()
    found = {"along": float(finite(moved).mean())}
    return found | ({"share": float(context.mean()), "log_odds": float(finite(odds).mean())} if n_context else {})


def _short(value: float) -> float:
    return float(f"{value:.5g}")
