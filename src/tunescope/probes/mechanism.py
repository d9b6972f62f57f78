"""Look into attention: what tuning did there, as numbers for a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tunescope.attachment.attention.reach import reached
from tunescope.errors import UserError
from tunescope.probes.looks.pattern import between
from tunescope.probes.see import What, see
from tunescope.probes.seen import Seen, finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROOM = 2**28  # bytes that the rows of one pass may take, where they are not a single row
RUNS = 3  # of a pass: along, bare and held
NUMBERS = 16  # bytes of a weight: its score, itself, and itself in float64


def mechanism(model: PreTrainedModel, what: What, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What tuning did inside attention, in a few numbers for a results file; cheap for a few rows.

    content_pattern_shift: how far attention over the content moved with each layer's inputs held: total variation,
    from 0 to 1, the mean over layers, heads and real query positions. A context alone gives 0 up to rounding, whatever
    it was trained to; a change of the query or key maps does not.
    by_layer: name, held (as above, of that layer), held_max (the largest of its queries), along (the same distance
    between two whole runs: a measurement, in which a context alone is not 0), context_share.
    context_share: the share of attention that goes to the context, the mean over layers, heads and real positions;
    it may be above 1 where a reweight changes weights behind the softmax, which need not sum to 1 then.
    reason: why a number is None; "" where none is. context_share is None where no context stands before the text, the
    shift where the bare model cannot have the text at the same positions, all where attention is not reached.

    Neither number says how much the task's score depends on what it measures. Rows are looked at a few at a time where
    their attention is large: `bytes_of` tells how much.
    """
    try:
        reached(model)
    except UserError as refusal:
        return {"content_pattern_shift": None, "by_layer": [], "context_share": None, "reason": str(refusal)}
    layers: dict[str, dict[str, _Sum]] = {}
    reason = ""
    for part in _parts(model, batch):
        seen = see(model, what, part)
        reason = seen.no_bare
        for name in seen.along:
            before = layers.setdefault(name, {})
            before |= {key: before.get(key, _Sum()).and_more(values) for key, values in _moved(seen, name).items()}
    moved = {name: _row(sums) for name, sums in layers.items()}
    return {
        "content_pattern_shift": _over_layers(row["held"] for row in moved.values()),
        "by_layer": [{"layer": name, **row} for name, row in moved.items()],
        "context_share": _over_layers(row["context_share"] for row in moved.values()),
        "reason": reason,
    }


def bytes_of(model: PreTrainedModel, tokens: int) -> int:
    """What looking at one row of so many tokens keeps of its attention, about; contexts come on top.

    Raises UserError for a family whose attention is not reached.
    """
    heads = sum(found.n_heads for found in reached(model))
    return RUNS * NUMBERS * heads * tokens**2


def _parts(model: PreTrainedModel, batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a batch, as many at a time as there is room for."""
    tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
    rows = max(map(len, tensors.values()))
    longest = max(value.shape[1] for value in tensors.values() if value.dim() > 1)  # output_start has a place a row
    some = max(1, ROOM // max(1, bytes_of(model, longest)))
    for first in range(0, rows, some):
        yield {**batch, **{name: value[first : first + some] for name, value in tensors.items() if len(value) == rows}}


@dataclass(frozen=True)
class _Sum:
    """Of the values that are defined: how many, their sum, and the largest."""

    count: int = 0
    total: float = 0.0
    most: float = 0.0

    def and_more(self, values: Tensor) -> _Sum:
        known = finite(values.double())
        if not known.numel():
            return self
        return _Sum(self.count + known.numel(), self.total + float(known.sum()), max(self.most, float(known.max())))

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


def _moved(seen: Seen, name: str) -> dict[str, Tensor]:
    """What of one module there is to measure, at every head and real position."""
    after = seen.along[name]
    found = {"context_share": after.at_real(after.share)} if after.n_context else {}
    if not seen.no_bare:
        found["held"] = after.at_real(between(seen.bare[name], seen.held[name]).total_variation)
        found["along"] = after.at_real(between(seen.bare[name], after).total_variation)
    return found


def _row(sums: Mapping[str, _Sum]) -> dict[str, float | None]:
    held, along, share = (sums.get(name, _Sum()) for name in ("held", "along", "context_share"))
    return {
        "held": held.mean,
        "held_max": held.most if held.count else None,
        "along": along.mean,
        "context_share": share.mean,
    }


def _over_layers(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
