"""Which classes will be confused, by the keys of their label words, and which are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tunescope.attachment.attention.reach import resting
from tunescope.attachment.attention.record import record
from tunescope.probes.anchors.confusion import actual_confusion, predicted_confusion, rank_correlation
from tunescope.probes.anchors.round import Round
from tunescope.probes.anchors.summary import mean, shown
from tunescope.report.finding import Finding, HeatMap

ORDER = 5
RESAMPLES = 200


def measure(round: Round) -> dict[str, Any]:
    """Predicted confusion by layer, the actual one, and their rank correlation, bootstrapped over rows in one layer.

    That layer is fixed beforehand: two thirds of the way up, as published (32 of 48).
    """
    queries, keys = _vectors(round)
    logits = round.logits[:, round.tokens.cpu()]
    actual = actual_confusion(logits, round.gold)
    predicted = [predicted_confusion(queries[name], keys[name]) for name in round.last]
    fixed = 2 * len(round.last) // 3
    return {
        "seed": round.seed,
        "rows": len(round.prompts),
        "labels": list(round.labels),
        "layer": fixed,
        "actual": actual.tolist(),
        "predicted": predicted[fixed].tolist(),
        "correlation": [rank_correlation(one, actual) for one in predicted],
        "bootstrap": _bootstrap(round, queries[round.last[fixed]], keys[round.last[fixed]], logits),
    }


def _vectors(round: Round) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """By attention module: queries (prompts, d) where the answer is read, and mean keys (classes, d) of label words."""
    queries: dict[str, list[Tensor]] = {name: [] for name in round.last}
    keys: dict[str, list[Tensor]] = {name: [] for name in round.last}
    for batch in round.batches():
        with resting(round.model):
            kept = record(round.model, {**batch.inputs, "use_cache": False}, "query", "key")
        words = [word.cpu() for word in batch.words(round.shown)]
        for name in round.last:
            query, key = kept[f"{name}.query"].cpu().double(), kept[f"{name}.key"].cpu().double()
            key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            queries[name].append(query[:, :, batch.answer].flatten(1))
            means = [(key * word[:, None, :, None]).sum(2) / word.sum(1)[:, None, None] for word in words]
            keys[name].append(torch.stack([one.flatten(1) for one in means], 1))
    by_class = torch.nn.functional.one_hot(round.classes, len(round.labels)).double()  # (prompts, words, classes)
    shares = by_class / by_class.sum((0, 1))
    return (
        {name: round.in_order(parts) for name, parts in queries.items()},
        {name: torch.einsum("pwd,pwc->cd", round.in_order(parts), shares) for name, parts in keys.items()},
    )


def _bootstrap(round: Round, queries: Tensor, keys: Tensor, logits: Tensor) -> list[float]:
    """[low, high]: the middle 95 % of the correlation over rows drawn with replacement; [] where it is undefined."""
    draw = torch.Generator().manual_seed(round.seed)
    found = []
    for _ in range(RESAMPLES):
        rows = torch.randint(len(queries), (len(queries),), generator=draw)
        actual = actual_confusion(logits[rows], round.gold[rows])
        found.append(rank_correlation(predicted_confusion(queries[rows], keys), actual))
    known = torch.tensor([value for value in found if math.isfinite(value)], dtype=torch.float64)
    if len(known) < RESAMPLES // 2:
        return []
    return torch.quantile(known, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()


def finding(found: Sequence[dict[str, Any]]) -> Finding:
    """The two confusions side by side, and their correlation by layer."""
    first = found[0]
    labels, layer = first["labels"], first["layer"]
    rows = [
        (f"{i} (fixed beforehand)" if i == layer else str(i), shown([one["correlation"][i] for one in found], -1, 1))
        for i in range(len(first["correlation"]))
    ]
    maps = [
        HeatMap(title, labels, labels, [mean([one[key][i] for one in found]) for i in range(len(labels))], low, 1.0)
        for title, key, low in (
            (f"Predicted: distance of the label words' keys in layer {layer}, of the largest", "predicted", 0.0),
            ("Actual: AUC-ROC between the two classes", "actual", 0.5),
        )
    ]
    return Finding(
        heading="Which classes are confused",
        says="Low is confused. Predicted from the label words' keys along the principal directions of the queries; "
        "actual: how well the model's probabilities part the rows of two classes (Wang et al. 2023, section 4.3). "
        f"Spearman's correlation over pairs of classes; {_intervals(found)}",
        not_said="With few classes there are few pairs, and the correlation is worth little; with two there "
        "is none. The layer is fixed beforehand; the others are shown, not chosen from.",
        columns=("layer", "rank correlation"),
        rows=rows,
        pictures=maps,
        numbers={"draws": list(found)},
    )


def _intervals(found: Sequence[dict[str, Any]]) -> str:
    parts = [
        f"[{low:.2f}, {high:.2f}]" for one in found for low, high in ([one["bootstrap"]] if one["bootstrap"] else [])
    ]
    return "95 % over rows, draw by draw: " + (", ".join(parts) or "undefined") + "."
