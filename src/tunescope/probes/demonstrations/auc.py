"""How far attention to label words already tells the answer, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tunescope.probes.anchors.auc import auc, cumulative
from tunescope.probes.anchors.round import Round
from tunescope.probes.anchors.summary import line, shown
from tunescope.report.finding import Curves, Finding, Line

ORDER = 3


def measure(round: Round) -> dict[str, Any]:
    """AUC by layer against the model's own predictions, and R_l."""
    areas = [auc(_by_class(round, weights), round.predicted) for weights in round.attended().values()]
    return {
        "seed": round.seed,
        "rows": len(round.prompts),
        "auc": areas,
        "cumulative": cumulative(torch.tensor(areas, dtype=torch.float64)).tolist(),
        "predicted": torch.bincount(round.predicted, minlength=len(round.labels)).tolist(),
    }


def _by_class(round: Round, weights: Tensor) -> Tensor:
    """(prompts, classes): attention (prompts, heads, demonstrations) summed over heads and a class's words."""
    found = torch.zeros(len(weights), len(round.labels), dtype=weights.dtype)
    return found.scatter_add_(1, round.classes, weights.sum(1))


def finding(found: Sequence[dict[str, Any]]) -> Finding:
    """AUC and R_l by layer."""
    layers = [str(layer) for layer in range(len(found[0]["auc"]))]
    rows = [
        (name, shown([one["auc"][i] for one in found], 0, 1), shown([one["cumulative"][i] for one in found]))
        for i, name in enumerate(layers)
    ]
    known = [one for one in found if all(map(math.isfinite, one["auc"]))]
    lines = [line("AUC", [one["auc"] for one in known], "context")] if known else []
    whole = [one["cumulative"] for one in known if all(map(math.isfinite, one["cumulative"]))]
    lines += [line("R_l", whole, "delta")] if whole else []
    one_class = sum(sum(count > 0 for count in one["predicted"]) < 2 for one in found)
    return Finding(
        heading="Whether attention to label words tells the answer",
        says="AUC-ROC of the attention from where the answer is read to the label words, summed over heads, against "
        "what the model then answers; 0.5 is chance. R_l: the share of all layers' excess over 0.5 that is reached by "
        f"that layer (Wang et al. 2023, section 2.3). {_left_out(one_class, len(found))}",
        not_said="What attention tells of the answer need not be where the answer comes from. The truth plays no part: "
        "a model that is always wrong can have an AUC of 1.",
        columns=("layer", "AUC", "R_l"),
        rows=rows,
        pictures=[Curves("AUC and R_l by layer", "layer", "", layers, lines, *_reach(lines))] if lines else [],
        numbers={"draws": list(found)},
    )


def _reach(lines: Sequence[Line]) -> tuple[float, float]:
    """The axis: 0 to 1, and as far as R_l goes where layers below chance take it beyond."""
    edges = [edge for one in lines for edges in (one.low, one.high) for edge in edges]
    return min(0.0, *edges), max(1.0, *edges)


def _left_out(count: int, of: int) -> str:
    if not count:
        return ""
    return f"In {count} of {of} draws the model gave one answer to every row, and there is no AUC."
