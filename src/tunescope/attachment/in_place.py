"""Full tuning without a change beside the weights: what is trained are the weights, and the change is what they became.

A change takes as much memory as the weights, and so do the sums of the two. Where a run has nothing else attached it
can do without: 16 bytes a parameter with AdamW in float32 (number, gradient, two moments), and 18 of a model in 16
bits, which computes with a copy of them in its own type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from tunescope.errors import UserError
from tunescope.system.interrupts import interrupts_held

if TYPE_CHECKING:
    from tunescope.attachment.weights import Patched

WHOLE = ".whole"  # behind the names of tensors that hold values, so that none is taken for a change


@contextmanager
def whole(stands: Patched) -> Iterator[None]:
    """Within it the tensors of the one change hold the parameters' values; afterwards what these have changed by.

    The model's own wait where they are in memory: of a CPU as they were loaded, which is in the pages of the
    checkpoint's file where its type is theirs; of a GPU beside it, in the host's. They are the same to the bit
    afterwards. What was added to them and what was trained differ by a unit in the last place of the larger at most.
    """
    stands.check_unwritten()
    ((_, tensors),) = stands.changes
    own = {name: stands.base[name] for name in tensors}
    where = {name: value.device for name, value in own.items()}
    with interrupts_held(), torch.no_grad():
        for name, value in tensors.items():
            value.add_(own[name].to(value.device))
            own[name].data = own[name].data.cpu()
        stands.is_whole = True
        stands.anew()
    try:
        yield
    finally:
        with interrupts_held(), torch.no_grad():
            for name, value in tensors.items():
                own[name].data = own[name].data.to(where[name])
                value.sub_(own[name].to(value.device))
            stands.is_whole = False
            if stands.stands:
                stands.anew()


def check_changes(attached: object, who: str) -> None:
    """UserError where what is attached to a model holds values for now, which `who` would take for changes."""
    if getattr(attached, "holds_values", False):
        raise UserError(f"{who} within in_place(), where artifacts hold weights and not their changes: do it behind.")
