"""How many parameters a method trains, stores and keeps at inference, and the size that meets a budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tunescope.attachment.initial_artifacts import base_of, fresh
from tunescope.attachment.merge import can_merge_into
from tunescope.errors import UserError
from tunescope.methods.artifact import Context, Spec, TokenContext
from tunescope.models.anatomy import anatomy
from tunescope.system import machine

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tunescope.trial.arm import Arm


LARGEST = 2**20  # of any size field


class TooSmallBudget(UserError):  # noqa: N818
    """A method's smallest size stores more than it may. kind: "context" or "delta"; least: what that size stores."""

    def __init__(self, message: str, kind: str, least: int) -> None:
        super().__init__(message)
        self.kind, self.least = kind, least


class Counts(NamedTuple):
    """trained: what the optimiser sees. stored: what is saved. live: what inference holds beside the base.

    live is for the cheapest exact form: a delta that is a change of weights is merged (0), a decoder's token context
    is kept as keys and values. Words of a text count nothing.
    """

    trained: int
    stored: int
    live: int


def count(model: PreTrainedModel, specs: Sequence[Spec], tokenizer: PreTrainedTokenizerBase | None = None) -> Counts:
    """The three counts of methods attached together, without making their tensors."""
    each = [_count_one(model, spec, tokenizer) for spec in specs]
    return Counts(*(sum(column) for column in zip(*each, strict=True))) if each else Counts(0, 0, 0)


def _count_one(model: PreTrainedModel, spec: Spec, tokenizer: PreTrainedTokenizerBase) -> Counts:
    if isinstance(spec, Context):
        base = base_of(model, tokenizer)
        shapes = spec.shapes(base)
        size = sum(map(prod, shapes.values()))
        if not isinstance(spec, TokenContext):
            stored = sum(map(prod, spec.folded().shapes(base).values()))
            return Counts(0 if spec.bound else size, stored, stored)
        made = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        length = len(spec.embeddings(made, lambda ids: torch.empty(len(ids), base.width, device="meta")))
        parameters = 0 if "ids" in shapes else size
        if anatomy(model).kind != "decoder":
            return Counts(parameters, parameters, parameters)
        per_token = sum(layer.kv_heads * (layer.d_key + layer.d_value) for layer in base.layers.values())
        return Counts(parameters, parameters, length * per_token)
    with torch.device("meta"):
        size = sum(value.numel() for value in fresh(model, spec).values())
    return Counts(size, size, 0 if can_merge_into(model, spec) else size)


def solve(
    model: PreTrainedModel, specs: Sequence[Spec], target: int, fixed: Sequence[set[str]] = ()
) -> tuple[list[Spec], Counts]:
    """The methods with their free sizes set so that they store as near to `target` parameters as they can, not above.

    fixed: for each method, the fields that the user set and that stay. Several free sizes share what is left equally.
    Raises UserError where even the smallest size is above the budget.
    """
    fixed = fixed or [set() for _ in specs]
    free = [spec.size is not None and spec.size not in held for spec, held in zip(specs, fixed, strict=True)]
    if not any(free):
        return list(specs), count(model, specs)
    taken = count(model, [spec for spec, is_free in zip(specs, free, strict=True) if not is_free]).stored
    if taken >= target:
        raise UserError(f"What is set already stores {taken:,} parameters: nothing is left of a budget of {target:,}.")
    share = (target - taken) // sum(free)
    solved = [_sized(model, spec, share) if is_free else spec for spec, is_free in zip(specs, free, strict=True)]
    return solved, count(model, solved)


def _sized(model: PreTrainedModel, spec: Spec, target: int) -> Spec:
    """The largest size that stores at most `target`, by doubling and halving the interval.

    Of sizes that store alike, as ranks past that of every map do, it is the smallest.
    """

    def stored(size: int) -> int | None:
        try:
            return count(model, [replace(spec, **{str(spec.size): size})]).stored  # type: ignore[type-var]
        except UserError:
            return None  # larger than the site allows

    smallest = count(model, [replace(spec, **{str(spec.size): 1})]).stored  # type: ignore[type-var]
    if smallest > target:
        raise TooSmallBudget(
            f"{type(spec).__name__} cannot be had for {target:,} parameters: its smallest size ({spec.size}=1) stores "
            f"{smallest:,}. Raise the budget, or give it fewer sites.",
            "context" if isinstance(spec, Context) else "delta",
            smallest,
        )
    low, high = 1, 2
    while high <= LARGEST and (now := stored(high)) is not None and now <= target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        now = stored(middle)
        low, high = (middle, high) if now is not None and now <= target else (low, middle)
    low = bisect_left(range(low + 1), stored(low) or 0, lo=1, key=lambda size: stored(size) or 0)  # whole rank: no more
    return replace(spec, **{str(spec.size): low})  # type: ignore[type-var]


def sized(
    arm: Arm,
    typed: tuple[Any, ...],
    fixed: Sequence[set[str]],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[tuple[Any, ...], str]:
    """The specs at the budget, and what to say of it."""

    if not typed:
        return typed, "head only" if arm.text == "head" else "nothing to store"
    free = [spec.size is not None and spec.size not in held for spec, held in zip(typed, fixed, strict=True)]
    if arm.budget is None or not any(free):
        stored = _checked(count(model, typed, tokenizer).stored)
        how = "size as typed" if any(spec.size for spec in typed) else "no size to set"
        return typed, f"{stored:,}, {how}" + (f", whatever the budget of {arm.budget:,}" if arm.budget else "")
    specs, counts = solve(model, typed, arm.budget, fixed)
    _checked(counts.stored)
    left = arm.budget - counts.stored
    return tuple(specs), f"nearest reachable {counts.stored:,}; {left:,} left" if left else f"{counts.stored:,} exactly"


def _checked(stored: int) -> int:
    """The number of parameters; UserError where they alone take more than there is, and the system would end us."""
    free = machine.free_memory()
    if 4 * stored > free:
        raise UserError(
            f"{stored:,} parameters take {4 * stored / 2**30:,.0f} GB, and there are {free / 2**30:,.0f} GB of memory "
            "to take: give a smaller size, or --budget."
        )
    return stored
