"""Demonstrations in front of a query: read once and shared, compressed to anchors, or read again for every query.

Saliency on all layers is against one forward and backward of the same prompts, with the model's own attention.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import tunescope as ts
from benchmarks.tools.measuring import Check, Result, alternating, compared
from benchmarks.tools.memory import megabytes
from benchmarks.tools.models import Scale, gpt2
from tunescope.attachment.site_hooks import frozen, logits_at
from tunescope.methods.artifact import Artifact
from tunescope.probes.anchors.compression import compress, positions_of
from tunescope.probes.anchors.saliency import saliency
from tunescope.tasks.prompts.spans import Spans

SHARED, ANCHORS = 1.25, 1.06  # of the time of the queries alone
TIME, MEMORY = 4.0, 2.0  # of one forward and backward
MEMORY_ROUNDS = {"full": 3, "tiny": 1}
CHOICES = (3, 4)  # the classes' tokens


@dataclass(frozen=True)
class Shape:
    """Demonstrations and the tokens of each: its parts in the order of PARTS; queries, and the tokens of each.

    prompts: whole ones in a batch of saliency.
    """

    demonstrations: int
    parts: tuple[int, int, int, int, int]
    queries: int
    tokens: int
    prompts: int


SHAPES = {
    "full": Shape(16, (2, 30, 3, 1, 1), queries=8, tokens=12, prompts=2),
    "tiny": Shape(3, (1, 5, 1, 1, 1), queries=2, tokens=4, prompts=2),
}
PARTS = ("prefix", "text", "separator", "label", "end")


class Words:
    """As much of a tokenizer as compressing asks for."""

    def decode(self, ids: object) -> str:
        return ""

    def get_vocab(self) -> dict[str, int]:
        return {}


def demonstrations(scale: Scale) -> Spans:
    """Random tokens in parts of the lengths of the shape."""
    shape = SHAPES[scale.name]
    places = []
    start = 0
    for _ in range(shape.demonstrations):
        place = {}
        for part, length in zip(PARTS, shape.parts, strict=True):
            place[part] = tuple(range(start, start + length))
            start += length
        places.append(place)
    return Spans(tuple(_ids(scale, 1, start, 1)[0].tolist()), tuple(places), ("a",) * shape.demonstrations)


def queries(scale: Scale) -> Tensor:
    """(queries, tokens) of random ids."""
    shape = SHAPES[scale.name]
    return _ids(scale, shape.queries, shape.tokens, 2)


def _ids(scale: Scale, rows: int, length: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(scale.gpt2[-1], (rows, length), generator=draw)


def run(scale: Scale) -> Result:
    spans = demonstrations(scale)
    model = gpt2(scale)
    contexts = made(model, spans)
    times = _query_times(model, scale, contexts)
    case = f"gpt2, {len(spans.ids)} tokens in front"
    alone = "query alone"
    ratios = [
        compared(case, "full, shared", alone, times, SHARED),
        compared(case, "anchors", alone, times, ANCHORS),
        compared(case, "read again", alone, times),
    ]
    steps = {variant: step(variant, scale) for variant in ("floor", "saliency")}
    case = "gpt2, saliency on all layers"
    ratios.append(compared(case, "saliency", "floor", alternating(steps, scale.rounds), TIME))
    taken = {
        variant: [megabytes("anchors", variant, scale.name == "tiny") for _ in range(MEMORY_ROUNDS[scale.name])]
        for variant in ("floor", "saliency")
    }
    ratios.append(compared(case, "saliency", "floor", taken, MEMORY, "memory"))
    return Result(ratios, _checks(model, scale, contexts), _settings(scale, spans))


def made(model: Any, spans: Spans) -> dict[str, Artifact]:
    """All positions, and the anchors."""
    return {
        "full, shared": compress(model, Words(), spans, range(len(spans.ids))),
        "anchors": compress(model, Words(), spans, "anchors"),
    }


def _query_times(model: Any, scale: Scale, contexts: dict[str, Artifact]) -> dict[str, list[float]]:
    """The time of all queries as one batch, by variant; each has a model of its own, so that all stay attached."""
    before, short = torch.tensor(demonstrations(scale).ids), queries(scale)
    whole = torch.cat([before.expand(len(short), -1), short], 1)
    with ExitStack() as stack:
        variants: dict[str, Callable[[], object]] = {
            "query alone": lambda: answer(model, short),
            "read again": lambda: answer(model, whole),
        }
        for name, artifact in contexts.items():
            own = gpt2(scale)
            stack.enter_context(ts.attach(own, artifact))
            variants[name] = lambda own=own: answer(own, short)  # type: ignore[misc]
        return alternating(variants, scale.rounds)


def answer(model: Any, ids: Tensor) -> Tensor:
    """(rows, vocabulary) behind the last token."""
    with torch.no_grad():
        logits: Tensor = model(input_ids=ids, logits_to_keep=1, use_cache=False).logits[:, -1]
    return logits


@dataclass(frozen=True)
class Whole:
    """As much of `tunescope.probes.anchors.prompts.Batch` as saliency asks for: whole prompts of one length."""

    inputs: dict[str, Tensor]
    real: Tensor
    answer: int


def step(variant: str, scale: Scale) -> Callable[[], None]:
    """Whole prompts forward and backward: "floor" with the model's own attention, or "saliency" of every layer."""
    model, shape = gpt2(scale), SHAPES[scale.name]
    before, short = torch.tensor(demonstrations(scale).ids), queries(scale)[: shape.prompts]
    ids = torch.cat([before.expand(len(short), -1), short], 1)
    gold = torch.zeros(len(ids), dtype=torch.long)
    if variant == "floor":
        return lambda: _floor(model, ids, gold)
    batch: Any = Whole({"input_ids": ids}, torch.ones_like(ids, dtype=torch.bool), ids.shape[1] - 1)

    def salient() -> None:
        saliency(model, batch, torch.tensor(CHOICES), gold, lambda _name, _found: None)

    return salient


def _floor(model: Any, ids: Tensor, gold: Tensor) -> None:
    where = torch.zeros_like(ids, dtype=torch.bool)
    where[:, -1] = True
    rows = model.get_input_embeddings()(ids).detach().requires_grad_()
    with frozen(model), logits_at(model, where):
        logits = model(inputs_embeds=rows, use_cache=False).logits
        F.cross_entropy(logits[:, list(CHOICES)], gold, reduction="sum").backward()


def _checks(model: Any, scale: Scale, contexts: dict[str, Artifact]) -> list[Check]:
    before, short = torch.tensor(demonstrations(scale).ids), queries(scale)
    whole = answer(model, torch.cat([before.expand(len(short), -1), short], 1))
    with ts.attach(model, contexts["full, shared"]):
        difference = (answer(model, short) - whole).abs().max()
    return [Check("largest difference of a logit, all kept against read again", float(difference), 1e-3)]


def _settings(scale: Scale, spans: Spans) -> dict[str, Any]:
    shape = SHAPES[scale.name]
    return {
        "demonstrations": shape.demonstrations,
        "tokens in front": len(spans.ids),
        "anchors": len(positions_of(spans, "anchors")),
        "queries": shape.queries,
        "tokens of a query": shape.tokens,
        "prompts of saliency": shape.prompts,
        "logits": "at the last position",
    }
