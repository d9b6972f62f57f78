"""How far compressed demonstrations answer like whole ones, and at what cost."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tunescope.attachment.attached import attach
from tunescope.attachment.attention.reach import resting
from tunescope.attachment.resumed_pass import Passes
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.anchors import Positions
from tunescope.probes.anchors.compression import kept, positions_of, random_sets, read, start_of
from tunescope.probes.anchors.prompts import Batch, Choices, Prompt, batch, cut
from tunescope.probes.anchors.saliency import answers
from tunescope.tasks.prompts.spans import Spans
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NOTHING = Spans((), (), ())
TIMED = 20  # queries whose time is taken, each alone


def label_loyalty(before: Tensor, after: Tensor) -> float:
    """The share of items whose predicted class is the same: both (items, classes), logits or probabilities."""
    return float((before.argmax(-1) == after.argmax(-1)).double().mean())


def word_loyalty(before: Tensor, after: Tensor, k: int = 5) -> float:
    """The mean Jaccard similarity of the k likeliest next tokens: both (items, vocabulary)."""
    one, other = before.topk(k, -1).indices, after.topk(k, -1).indices
    shared = (one[:, :, None] == other[:, None, :]).sum((1, 2)).double()
    return float((shared / (2 * k - shared)).mean())


@dataclass(frozen=True)
class Measured:
    """What one way to give demonstrations is worth.

    kept: key positions. bytes: of their keys and values in all layers. seconds: median of a query alone, the context
    made beforehand. Loyalties are to the whole demonstrations.
    """

    kept: float
    bytes: float
    accuracy: float
    label_loyalty: float
    word_loyalty: float
    seconds: float


@dataclass(frozen=True)
class Queries:
    """Queries to put to a model behind one context or another.

    rows: encoded without a start token, for they follow a text. choices.tokens: in the order of the rows' labels.
    under: deltas that are in force and contexts that stand before. k: of word loyalty. at_once: rows in one batch.
    passes: where what enters some layers is kept, so that passes that are alike below one can begin there.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    rows: Sequence[Encoded]
    choices: Choices
    under: Sequence[Artifact] = ()
    k: int = 5
    at_once: int = 8
    passes: Passes | None = None

    def __post_init__(self) -> None:
        if not self.rows:
            raise UserError("Loyalty is measured on queries, and there are none: give one row at least.")

    def logits(self, *context: Artifact, begun_at: int | None = None) -> Tensor:
        """(rows, vocabulary), where the classes are told apart, on the CPU; rows of like length run together.

        begun_at: a layer below which the context is that of the first call, of which `passes` has kept what entered it.
        """
        numbers = [number for some in self._cut for number in some]
        with self._attached(context):
            found = torch.cat([self._answers(*one, begun_at) for one in enumerate(self._batches(self._cut))])
        return found[torch.tensor(numbers).argsort()]

    def _answers(self, number: int, one: Batch, begun_at: int | None) -> Tensor:
        with ExitStack() as stack:
            if self.passes is not None:
                kept = self.passes.keeping(number) if begun_at is None else self.passes.begun_at(number, begun_at)
                stack.enter_context(kept)
            return answers(self.model, one).cpu()

    def seconds(self, *context: Artifact, before: Spans = NOTHING) -> float:
        """The median time of one query, after one that is not counted; `before` is read anew for every query."""
        with self._attached(context):
            times: list[float] = []
            for one in self._batches([[number] for number in range(len(self.rows))][:TIMED], before):
                if not times:
                    answers(self.model, one)
                self._wait()
                start = time.perf_counter()
                answers(self.model, one)
                self._wait()
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    def by_class(self, logits: Tensor) -> Tensor:
        """(rows, vocabulary) -> (rows, classes)."""
        return logits[:, list(self.choices.tokens)]

    @cached_property
    def _cut(self) -> list[list[int]]:
        """The numbers of the rows that run together."""
        order = sorted(range(len(self.rows)), key=lambda number: len(self.rows[number].input_ids))
        prompts = [Prompt(NOTHING, self.rows[number]) for number in order]
        return [[order[at] for at in some] for some in cut(self.model, prompts, self.choices.lead, self.at_once)]

    def _batches(self, cut: Sequence[Sequence[int]], before: Spans = NOTHING) -> Iterator[Batch]:
        for numbers in cut:
            prompts = [Prompt(before, self.rows[number]) for number in numbers]
            yield batch(self.model, self.tokenizer, prompts, self.choices.lead)

    @contextmanager
    def _attached(self, context: Sequence[Artifact]) -> Iterator[None]:
        with resting(self.model), torch.no_grad():
            if not (self.under or context):
                yield
                return
            with attach(self.model, *self.under, *context):
                yield

    def _wait(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)


def measured_ways(
    asked: Queries, spans: Spans, *, seed: int = 0, positions: Positions = "original"
) -> dict[str, Measured]:
    """Each way to give the demonstrations, by name.

    "prompt": in front of every query, read anew. "full": read once, all kept; its answers are those of "prompt".
    "anchors", "labels": by that rule. "text_anchor": the anchors' tokens as a text of their own, read once. "random":
    the mean of the random sets. "random-top": the one of them with the highest label loyalty, chosen on the very rows
    that it is scored on, as published, so it flatters. "zero-shot": no demonstrations, only the tokenizer's start. Its
    loyalty is the floor: of a model that answers most rows with one class, every way is loyal.

    Raises UserError as `compress` does.
    """
    whole = read(asked.model, asked.tokenizer, spans.ids, asked.under)
    full = asked.logits(whole)
    found = {"full": _measured(asked, full, whole)}
    found["prompt"] = replace(found["full"], kept=0, bytes=0, seconds=asked.seconds(before=spans))
    for rule in ("anchors", "labels"):
        found[rule] = _measured(asked, full, kept(whole, positions_of(spans, rule), positions))
    formatted = [spans.ids[at] for at in positions_of(spans, "anchors")]
    found["text_anchor"] = _measured(asked, full, read(asked.model, asked.tokenizer, formatted, asked.under))
    drawn = [kept(whole, one, positions) for one in random_sets(spans, seed)]
    seconds = asked.seconds(drawn[0])
    sets = [_measured(asked, full, one, seconds=seconds) for one in drawn]
    found["random"] = _mean(sets)
    found["random-top"] = max(sets, key=lambda one: one.label_loyalty)
    start = start_of(spans)
    nothing = [read(asked.model, asked.tokenizer, start, asked.under)] if start else []
    found["zero-shot"] = _measured(asked, full, *nothing)
    return found


def trade_off(
    asked: Queries,
    spans: Spans,
    sets: Sequence[Sequence[int]],
    positions: Positions = "original",
    *,
    timed: bool = True,
) -> list[Measured]:
    """What each set of positions is worth: size against loyalty, all from one pass over the demonstrations.

    timed: as in `measured_ways`; else `seconds` is nan, and it takes hardly more than half as long. Equal sets are
    measured once.
    """
    whole, seconds = read(asked.model, asked.tokenizer, spans.ids, asked.under), None if timed else math.nan
    full = asked.logits(whole)
    found = {
        one: _measured(asked, full, kept(whole, one, positions), seconds=seconds)
        for one in dict.fromkeys(map(tuple, sets))
    }
    return [found[tuple(one)] for one in sets]


def _measured(asked: Queries, full: Tensor, *context: Artifact, seconds: float | None = None) -> Measured:
    """`full`: (rows, vocabulary), the answers of the whole demonstrations."""
    logits = asked.logits(*context)
    tensors = [value for artifact in context for value in artifact.tensors.values()]
    gold = torch.tensor([row.label for row in asked.rows])
    return Measured(
        kept=tensors[0].shape[1] if tensors else 0,
        bytes=sum(value.numel() * value.element_size() for value in tensors),
        accuracy=float((asked.by_class(logits).argmax(-1) == gold).double().mean()),
        label_loyalty=label_loyalty(asked.by_class(full), asked.by_class(logits)),
        word_loyalty=word_loyalty(full, logits, asked.k),
        seconds=asked.seconds(*context) if seconds is None else seconds,
    )


def _mean(found: Sequence[Measured]) -> Measured:
    columns = zip(*(vars(one).values() for one in found), strict=True)
    return Measured(*(statistics.fmean(column) for column in columns))
