"""The size of an arm's methods that a budget allows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunescope.comparing.arms import Arm


def sized(
    arm: "Arm", typed: tuple[Any, ...], fixed: Sequence[set[str]], model: Any, tokenizer: Any
) -> tuple[tuple[Any, ...], str]:
    """The specs at the budget, and what to say of it."""
    from tunescope.budget import count, solve

    if not typed:
        return typed, "head only" if arm.text == "head" else "nothing to store"
    free = [spec.size is not None and spec.size not in held for spec, held in zip(typed, fixed, strict=True)]
    if arm.budget is None or not any(free):
        stored = count(model, typed, tokenizer).stored
        how = "size as typed" if any(spec.size for spec in typed) else "no size to set"
        return typed, f"{stored:,}, {how}" + (f", whatever the budget of {arm.budget:,}" if arm.budget else "")
    specs, counts = solve(model, typed, arm.budget, fixed)
    left = arm.budget - counts.stored
    return tuple(specs), f"nearest reachable {counts.stored:,}; {left:,} left" if left else f"{counts.stored:,} exactly"
