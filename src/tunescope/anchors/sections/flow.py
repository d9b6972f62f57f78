"""Where information flows: into label words in shallow layers, from them to the answer in deep ones?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tunescope.anchors.flow import flow
from tunescope.anchors.prompts import Batch
from tunescope.anchors.round import Round
from tunescope.anchors.saliency import saliency
from tunescope.anchors.summary import line, shown
from tunescope.errors import UserError
from tunescope.looking.finding import Arcs, Curves, Finding

ORDER = 1
KINDS = ("into label words", "from label words", "elsewhere")
PARTS = ("prefix", "text", "separator", "label")


def measure(round: Round) -> dict[str, Any]:
    """The shares of the three flows by layer, and the mean flow between the parts of the prompt in two layers.

    Raises UserError for an encoder-decoder, whose layers have no order of tokens to flow along.
    """
    if round.last != round.reading:
        raise UserError("Flow follows one row of tokens: take a decoder; an encoder-decoder reads both ways.")
    sums: dict[str, list[Tensor]] = {name: [] for name in round.last}
    grids: dict[str, list[Tensor]] = {name: [] for name in round.last}
    for start, batch in enumerate(round.batches()):
        rows = slice(start * round.at_once, start * round.at_once + len(batch.prompts))
        nodes = _nodes(round, batch)

        def take(name: str, found: Tensor, batch: Batch = batch, nodes: Tensor = nodes) -> None:
            sums[name].append(torch.stack(flow(found, batch.labels, batch.answer, batch.real), -1).double().cpu())
            grids[name].append(_between(found, nodes))

        gold = round.gold[rows].to(round.model.device)
        saliency(round.model, batch, round.tokens, gold, take)
    totals = [torch.cat(sums[name]).mean(0) for name in round.last]
    return {
        "seed": round.seed,
        "rows": len(round.prompts),
        "saliency": [one.tolist() for one in totals],
        "shares": [(one / one.sum()).tolist() for one in totals],
        "parts": _names(round),
        "marked": [i for i, name in enumerate(_names(round)) if name.startswith("label")],
        "between": {str(i): torch.stack(grids[round.last[i]]).mean(0).tolist() for i in _ends(round)},
    }


def _ends(round: Round) -> tuple[int, int]:
    """A shallow and a deep layer: the first, and the last but one (the last sees only what it reads itself)."""
    return 0, max(0, len(round.last) - 2)


def _names(round: Round) -> list[str]:
    own = [f"{part} {number}" for number in range(1, round.shown + 1) for part in PARTS]
    return [*own, "query", "answer"]


def _nodes(round: Round, batch: Batch) -> Tensor:
    """(batch, columns, parts), one where a column belongs to a part."""
    last = batch.real.shape[1] - 1
    found = [
        batch.columns([prompt.spans.places[number][part] for prompt in batch.prompts])
        for number in range(round.shown)
        for part in PARTS
    ]
    answer = torch.zeros_like(batch.real)
    answer[:, last] = True
    query = batch.real & ~answer
    begins = torch.tensor([len(prompt.spans.ids) for prompt in batch.prompts], device=query.device) + batch.offset
    query &= torch.arange(last + 1, device=query.device) >= begins[:, None]
    return torch.stack([*found, query, answer], -1).double()


def _between(found: Tensor, nodes: Tensor) -> Tensor:
    """(parts, parts): the mean saliency of a pair of tokens, from a column's part to a row's, over the batch."""
    total = torch.einsum("bqk,bqi,bkj->ij", found.double(), nodes, nodes)
    earlier = torch.ones(found.shape[1:], dtype=torch.float64, device=found.device).tril(-1)
    pairs = torch.einsum("qk,bqi,bkj->ij", earlier, nodes, nodes)
    return (total / pairs.clamp(min=1)).cpu()


def told(found: Sequence[dict[str, Any]]) -> Finding:
    """The three shares by layer, and the arcs of the paper's Figure 1."""
    layers = len(found[0]["shares"])
    by_kind = [[[layer[kind] for layer in one["shares"]] for one in found] for kind in range(3)]
    rows = [
        (str(layer), *(shown([draw[layer] for draw in by_kind[kind]], 0, 1) for kind in range(3)))
        for layer in range(layers)
    ]
    styles = ("context", "delta", "text")
    curves = Curves(
        "Share of the mean saliency, by layer",
        "layer",
        "share",
        [str(layer) for layer in range(layers)],
        [line(name, draws, style) for name, draws, style in zip(KINDS, by_kind, styles, strict=True)],
    )
    return Finding(
        heading="Where information flows through the demonstrations",
        says="Saliency |sum over heads of attention times gradient|, the mean over pairs of tokens: into label words "
        "from what stands before them (S_wp), from label words to where the answer is read (S_pq), all others "
        "(S_ww); their shares, layer by layer (Wang et al. 2023, section 2.1).",
        not_said="A gradient says how the loss would move with a small change of one weight; it does not say that what "
        "flows there is used. A mean over few pairs is compared with one over many: the shares are not shares of "
        "all that flows.",
        columns=("layer", "into label words (S_wp)", "from label words (S_pq)", "elsewhere (S_ww)"),
        rows=rows,
        pictures=[curves, *_arcs(found)],
        numbers={"draws": list(found)},
    )


def _arcs(found: Sequence[dict[str, Any]]) -> list[Arcs]:
    """Of the first draw, for the order of labels differs from draw to draw."""
    first = found[0]
    pictures = []
    for layer, grid in first["between"].items():
        flows = [(j, i, value) for i, row in enumerate(grid) for j, value in enumerate(row) if j != i and value > 0]
        title = f"Saliency between the parts of the prompt, layer {layer}: blue into label words, orange from them"
        pictures.append(Arcs(title, first["parts"], flows, first["marked"]))
    return pictures
