"""The four terms of the second layer's logits, one of which joins content with content (Petrov et al. 2024)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.models.family import decoders
from tunescope.probes.seen import Layer, Maps, Seen, as_numbers, check_run
from tunescope.report.finding import Finding, HeatMap

NAMES = ("context, context", "content, context", "context, content", "content, content")
LAYERS = ("decoder.0.self", "decoder.1.self")


class SecondLayer(NamedTuple):
    """Terms of the logits, each (..., query, key); the first word is the query's part, the second the key's."""

    bias_bias: Tensor
    content_bias: Tensor
    bias_content: Tensor
    content_content: Tensor


def second_layer(bias: Tensor, content: Tensor, matrix: Tensor) -> SecondLayer:
    """Split x H x' of a next layer that reads x = bias + content; the four terms sum to its logits.

    With one context vector, share a_i, value mu and content output t_i, as in the paper, bias = a_i mu and content =
    (1 - a_i) t_i, and the terms are a_i a_j mu'H mu, (1 - a_i) a_j t_i'H mu, a_i (1 - a_j) mu'H t_j and
    (1 - a_i)(1 - a_j) t_i'H t_j. Only the last has content on both sides, and its H is the pretrained one: the context
    scales it and adds to it. With more context vectors mu depends on the position, through the shares among them.

    A real model has a residual stream, norms, an MLP and positions between and in its layers: this knows none of them.

    Args:
        bias: (..., positions, width), what the context adds to the layer's output.
        content: (..., positions, width), the rest of it.
        matrix: (width, width), H = query map transposed times key map, times the scaling.
    """
    return SecondLayer(*(query @ matrix @ key.mT for key in (bias, content) for query in (bias, content)))


def look(seen: Seen) -> Finding:
    """The size of the four terms for every head of a decoder's second layer.

    Approximated: that layer's frozen query and key maps are applied to what the first layer's attention adds to the
    residual stream, through its frozen output map. Left out: the embeddings that the stream also carries, norms, the
    MLP, biases, rotation, and deltas on these maps.

    Raises UserError for other models than decoders of these families with two layers, for quantised ones, and where
    nothing stands before the text.
    """
    check_run("second_layer", seen)
    if LAYERS[0] in seen.along and LAYERS[1] not in seen.along:
        raise UserError("Probe second_layer: this decoder has one layer. Type: tunescope probe pattern.")
    if not all(name in seen.maps for name in LAYERS):
        raise UserError(
            "Probe second_layer reads the maps of a decoder's first two layers, which it knows of the families "
            f"{', '.join(decoders())}, not quantised; this model is another. Type: tunescope probe pattern."
        )
    first = seen.along[LAYERS[0]]
    if not first.n_context:
        raise UserError(
            f"Probe second_layer: {seen.attached} puts nothing before the text, so there is no bias. "
            "Type: tunescope probe pattern."
        )
    parts = _added(first, seen.maps[LAYERS[0]])
    sizes = torch.stack([_sizes(*parts, first.real, seen.maps[LAYERS[1]], head) for head in _heads(seen)])
    heads = [f"head {head}" for head in _heads(seen)]
    grid = as_numbers(list(sizes.square() / sizes.square().sum(-1, keepdim=True)))
    return Finding(
        heading="What the second layer's logits are made of",
        says="Root mean square of each term over all pairs of a query and a key up to it: the query's part first, the "
        "key's second. Only the last joins content with content.",
        not_said="This is the second layer as if it read the first attention's output alone: no residual stream, norm, "
        "MLP, bias, rotation or delta on its maps. Sizes alone do not say what moves attention.",
        columns=("head", *NAMES),
        rows=[(head, *row) for head, row in zip(heads, sizes.tolist(), strict=True)],
        pictures=[HeatMap("Each term's share of the squares, by head of the second layer", heads, NAMES, grid)],
        numbers={"terms": list(SecondLayer._fields), "root_mean_square": sizes.tolist()},
    )


def _heads(seen: Seen) -> range:
    return range(len(seen.maps[LAYERS[1]].query))


def _added(layer: Layer, maps: Maps) -> tuple[Tensor, Tensor]:
    """What the context and the content add to the residual stream: (batch, query, width)."""
    output = maps.output.double()
    return torch.einsum("bhqd,hwd->bqw", layer.bias, output), torch.einsum("bhqd,hwd->bqw", layer.content, output)


def _sizes(bias: Tensor, content: Tensor, real: Tensor, maps: Maps, head: int) -> Tensor:
    """(4,) over the pairs of real positions, the key not after the query."""
    matrix = maps.scaling * maps.query[head].double().T @ maps.key[head].double()
    pairs = (real[:, :, None] & real[:, None, :]).tril()
    return torch.stack([term[pairs].square().mean().sqrt() for term in second_layer(bias, content, matrix)])
