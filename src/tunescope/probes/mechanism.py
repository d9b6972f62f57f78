"""Look into attention: what tuning did there, as numbers for a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from tunescope.attachment.attention.reach import reached
from tunescope.errors import UserError
from tunescope.probes.looks.pattern import between
from tunescope.probes.see import What, see
from tunescope.probes.seen import Seen, summary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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

    Neither number says how much the task's score depends on what it measures.
    """
    try:
        reached(model)
    except UserError as refusal:
        return {"content_pattern_shift": None, "by_layer": [], "context_share": None, "reason": str(refusal)}
    seen = see(model, what, batch)
    moved = {name: _moved(seen, name) for name in seen.along}
    return {
        "content_pattern_shift": _over_layers(row["held"] for row in moved.values()),
        "by_layer": [{"layer": name, **row} for name, row in moved.items()],
        "context_share": _over_layers(row["context_share"] for row in moved.values()),
        "reason": seen.no_bare,
    }


def _moved(seen: Seen, name: str) -> dict[str, float | None]:
    after = seen.along[name]
    share = after.at_real(after.share)
    found: dict[str, float | None] = {"held": None, "held_max": None, "along": None, "context_share": None}
    if after.n_context:
        found["context_share"] = summary(share)[1]
    if not seen.no_bare:
        held = summary(after.at_real(between(seen.bare[name], seen.held[name]).total_variation))
        along = summary(after.at_real(between(seen.bare[name], after).total_variation))
        found |= {"held": held[1], "held_max": held[2], "along": along[1]}
    return {key: value if value is not None and isfinite(value) else None for key, value in found.items()}


def _over_layers(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
