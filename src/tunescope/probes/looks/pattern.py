"""How far the attention over the content moved: in each layer with its inputs held fixed, and along depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor

from tunescope.errors import UserError
from tunescope.probes.seen import Layer, Seen, as_numbers, attention_map, check_run, summary
from tunescope.report.finding import Finding, HeatMap, Pair


class PatternShift(NamedTuple):
    """How far one attention pattern is from another: both (batch, heads, query), from 0 to 1."""

    total_variation: Tensor
    largest: Tensor


def pattern(before: Tensor, after: Tensor) -> PatternShift:
    """The distance between two attention patterns over the same keys, each renormalised over those keys.

    ``total_variation`` is half the sum of the absolute differences, the share of attention that went elsewhere;
    ``largest`` is the largest difference at one key. NaN where a query attends to none of the keys. Whether a layer
    or its inputs made the difference, the two patterns do not tell: that is in how they were recorded.

    Args:
        before: (batch, heads, query, content), attention on the content, whatever it sums to.
        after: the same queries and keys in another state of the model.
    """
    difference = (after / after.sum(-1, keepdim=True) - before / before.sum(-1, keepdim=True)).abs()
    return PatternShift(difference.sum(-1) / 2, difference.amax(-1))


def between(before: Layer, after: Layer) -> PatternShift:
    """`pattern` of two recorded layers, contexts left out."""
    return pattern(*(layer.weights[..., layer.n_context :] for layer in (before, after)))


def look(seen: Seen) -> Finding:
    """Total variation between the attention over the text without and with what is attached, held and along depth.

    Raises UserError where the bare model cannot have the text at the same positions.
    """
    check_run("pattern", seen)
    if seen.no_bare:
        raise UserError(f"Probe pattern: {seen.no_bare}. Type: tunescope probe prefix_bias.")
    held = {name: _by_head(seen.bare[name], layer) for name, layer in seen.held.items()}
    along = {name: _by_head(seen.bare[name], layer) for name, layer in seen.along.items()}
    high = max(0.05, *(summary(one)[2] for one in (*held.values(), *along.values())))
    grids = [
        _grid("held: each layer's own doing", held, high),
        _grid("along depth: its inputs changed too", along, high),
    ]
    return Finding(
        heading="How far attention over the text moved",
        says="Total variation over the text's keys, the mean over positions: held, with each attention's inputs as in "
        "the bare model; along depth, in two whole runs. A context alone gives 0 held in every layer, to rounding, "
        "whatever it was trained to: there it can only scale attention over the text.",
        not_said="Along depth the inputs of a layer differ too, so its number there is not its own doing. A "
        "pattern that moved need not be why a score did.",
        columns=(
            "layer",
            *(f"{run}, {which}" for run in ("held", "along") for which in ("least head", "mean", "most")),
        ),
        rows=[(name, *summary(held[name]), *summary(along[name])) for name in held],
        pictures=[*grids, *_pairs(seen, held, "held"), *_pairs(seen, along, "along")],
        numbers={name: {"held": held[name].tolist(), "along": along[name].tolist()} for name in held},
    )


def _by_head(before: Layer, after: Layer) -> Tensor:
    """(heads,), the mean over the positions where both attend to the text at all."""
    moved = after.at_real(between(before, after).total_variation)
    return moved.nanmean(-1)


def _grid(title: str, heads: Mapping[str, Tensor], high: float) -> HeatMap:
    values = as_numbers(list(heads.values()))
    columns = [f"head {head}" for head in range(len(values[0]))]
    return HeatMap(f"Attention over the text moved, {title}", list(heads), columns, values, high=high)


def _pairs(seen: Seen, heads: Mapping[str, Tensor], run: Literal["held", "along"]) -> list[Pair]:
    """The head that moved most, before and after; none where none moved beyond rounding."""
    name = max(heads, key=lambda one: summary(heads[one])[2])
    if not summary(heads[name])[2] > 1e-6:
        return []
    head = int(heads[name].nan_to_num(-1).argmax())
    title = f"The head that moved most, {'held' if run == 'held' else 'along depth'}: {name}, head {head}"
    maps = (attention_map(seen, which, name, head, content=True) for which in ("bare", run))
    return [Pair(title, *maps)]
