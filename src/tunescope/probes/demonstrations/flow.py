"""Where information flows: into label words in shallow layers, from them to the answer in deep ones?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.errors import UserError
from tunescope.probes.anchors.flow import Flow, flow
from tunescope.probes.anchors.prompts import Batch
from tunescope.probes.anchors.round import Round
from tunescope.probes.anchors.saliency import saliency
from tunescope.probes.anchors.summary import line, shown
from tunescope.report.finding import Arcs, Curves, Finding
from tunescope.tasks.prompts.demonstrations import PARTS

ORDER = 1
KINDS = ("into label words", "from label words", "elsewhere")


def measure(round: Round) -> dict[str, Any]:
    """The shares of the three flows by layer, and the mean flow between the parts of the prompt in two layers.

    Layer i of an encoder-decoder is what the encoder's layer i reads and what the decoder's layer i asks of it.

    Raises UserError where the two have not as many layers.
    """
    if len(round.reading) != len(round.last):
        raise UserError(
            f"flow joins layer i of the encoder to layer i of the decoder, and this model has {len(round.reading)} and "
            f"{len(round.last)}."
        )
    layers = list(zip(round.reading, round.last, strict=True))
    sums: list[list[Tensor]] = [[] for _ in layers]
    grids: list[list[tuple[Tensor, Tensor]]] = [[] for _ in layers]
    for rows, batch in zip(round.cut, round.batches(), strict=True):
        prompt = _Prompt.of(round, batch)
        waiting: dict[str, Tensor] = {}

        def take(name: str, found: Tensor, prompt: _Prompt = prompt, waiting: dict[str, Tensor] = waiting) -> None:
            waiting[name] = found
            for index, (reads, asks) in enumerate(layers):
                if name in (reads, asks) and reads in waiting and asks in waiting:
                    square = prompt.square(waiting.pop(reads), waiting.pop(asks, None))
                    sums[index].append(torch.stack(prompt.flow(square), -1).cpu().double())
                    grids[index].append(prompt.between(square))

        saliency(round.model, batch, round.tokens, round.gold[rows].to(round.model.device), take)
    totals = [torch.cat(one).mean(0) for one in sums]
    return {
        "seed": round.seed,
        "rows": len(round.prompts),
        "saliency": [one.tolist() for one in totals],
        "shares": [(one / one.sum()).tolist() for one in totals],
        "parts": _names(round),
        "marked": [i for i, name in enumerate(_names(round)) if name.startswith("label")],
        "between": {str(i): _means(grids[i]).tolist() for i in _ends(len(layers))},
    }


def _means(grids: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Over all pairs of tokens of all batches, however many a batch has."""
    totals, counts = (torch.stack(each).sum(0) for each in zip(*grids, strict=True))
    return totals / counts.clamp(min=1)


def _ends(layers: int) -> tuple[int, int]:
    """A shallow and a deep layer: the first, and the last but one (the last sees only what it reads itself)."""
    return 0, max(0, layers - 2)


def _names(round: Round) -> list[str]:
    own = [f"{part} {number}" for number in range(1, round.shown + 1) for part in PARTS]
    return ["start", *own, "query", "answer"]


@dataclass(frozen=True)
class _Prompt:
    """Where everything stands in a batch: the text's columns and, for an encoder-decoder, one more for its answer.

    nodes: (batch, columns, parts), one where a column belongs to a part; on the CPU.
    """

    labels: Tensor
    real: Tensor
    nodes: Tensor
    answer: int
    row: int | None  # of the decoder, where the answer is read; None where decoder and text are one

    @classmethod
    def of(cls, round: Round, batch: Batch) -> _Prompt:
        apart = round.last != round.reading
        real, labels = F.pad(batch.real, (0, int(apart)), value=True), F.pad(batch.labels, (0, int(apart)))
        last = real.shape[1] - 1
        at = torch.arange(last + 1, device=real.device)
        begins = torch.tensor([len(prompt.spans.ids) for prompt in batch.prompts], device=real.device) + batch.offset
        places = [
            batch.columns([prompt.spans.places[number][part] for prompt in batch.prompts])
            for number in range(round.shown)
            for part in PARTS
        ]
        query, answer = real & (at >= begins[:, None]) & (at < last), (at == last).expand_as(real)
        own = [F.pad(one, (0, int(apart))) for one in places]
        start = real & (at < begins[:, None]) & ~torch.stack(own).any(0)  # of the tokenizer, and of a chat
        nodes = torch.stack([start, *own, query, answer], -1).cpu().double()
        return cls(labels, real, nodes, last, batch.answer if apart else None)

    def square(self, reads: Tensor, asks: Tensor | None) -> Tensor:
        """(batch, columns, columns) of one layer; in an encoder-decoder its answer is the last row."""
        if self.row is None or asks is None:
            return reads
        whole = F.pad(reads, (0, 1, 0, 1))
        whole[:, -1, :-1] = asks[:, self.row]
        return whole

    def flow(self, square: Tensor) -> Flow:
        return flow(square, self.labels, self.answer, self.real, both_ways=self.row is not None)

    def between(self, square: Tensor) -> tuple[Tensor, Tensor]:
        """(parts, parts) each: the saliency of all pairs of tokens, from a column's part to a row's; their count."""
        n = square.shape[-1]
        pairs = torch.ones(n, n, dtype=torch.float64)
        pairs = pairs.tril(-1) if self.row is None else pairs - torch.eye(n, dtype=pairs.dtype)
        total = torch.einsum("bqk,bqi,bkj->ij", square.cpu().double() * pairs, self.nodes, self.nodes)
        count = torch.einsum("qk,bqi,bkj->ij", pairs, self.nodes, self.nodes)
        return total, count


def finding(found: Sequence[dict[str, Any]]) -> Finding:
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
        "all that flows. In the last layer (but of an encoder-decoder) only the answer's own row has a gradient, so "
        "S_wp is zero there whatever the model does.",
        columns=("layer", "into label words (S_wp)", "from label words (S_pq)", "elsewhere (S_ww)"),
        rows=rows,
        pictures=[curves, *_arcs(found)],
        numbers={"draws": list(found)},
    )


def _arcs(found: Sequence[dict[str, Any]]) -> list[Arcs]:
    """Of the first draw, for the order of labels differs from draw to draw. Parts without any flow are left out."""
    first = found[0]
    between = [torch.tensor(grid) for grid in first["between"].values()]
    used = [i for i in range(len(first["parts"])) if any(grid[i].any() or grid[:, i].any() for grid in between)]
    names, marked = [first["parts"][i] for i in used], [used.index(i) for i in first["marked"] if i in used]
    pictures = []
    for layer, grid in zip(first["between"], between, strict=True):
        kept = grid[used][:, used].tolist()
        flows = [(j, i, value) for i, row in enumerate(kept) for j, value in enumerate(row) if j != i and value > 0]
        title = f"Saliency between the parts of the prompt, layer {layer}: blue into label words, orange from them"
        pictures.append(Arcs(title, names, flows, marked))
    return pictures
