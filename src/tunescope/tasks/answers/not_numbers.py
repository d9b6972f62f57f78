"""Rows of which a model's scores are no numbers (NaN): taken again without padding, which alone can do it, or refused.

Gemma 2 in float64 makes them of rows that are padded on the left, in transformers as here, and has numbers for each
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tunescope.errors import UserError
from tunescope.tasks.answers.batches import in_batches
from tunescope.tasks.task import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Work = Callable[[list[int]], Any]


class NotNumbers(UserError):  # noqa: N818
    """A model's scores hold NaN; `row` is the line of the first row of which they do."""

    def __init__(self, row: int):
        super().__init__(
            f"The model's scores are no numbers (NaN), first on row {row}: its weights may hold some, or its precision "
            "overflow. Load it in float32."
        )
        self.row = row


def without_lost(
    model: PreTrainedModel,
    rows: Sequence[Encoded],
    found: Sequence[Any],
    batch_size: int,
    work: Work,
    deal: bool = True,
) -> list[Any]:
    """What was `found` of each row; of those where it `is_lost`, what `work` makes of them, none of them padded.

    The first of them is tried alone: weights that hold NaN cost one row more, not all.

    Raises:
        UserError: it is lost again.
    """
    made = list(found)
    lost = [index for index, one in enumerate(found) if is_lost(one)]
    for some in filter(None, (lost[:1], lost[1:])):
        lengths = [len(rows[index].input_ids) for index in some]
        again = in_batches(model, lengths, batch_size, _of(some, work), deal=deal, alike=True)
        for index, one in zip(some, again, strict=True):
            if is_lost(one):
                raise refused(rows[index])
            made[index] = one
    return made


def _of(some: Sequence[int], work: Work) -> Work:
    """The same of numbers among `some`."""
    return lambda chosen: work([some[index] for index in chosen])


def is_lost(one: Tensor | str | None) -> bool:
    """Whether scores hold NaN; of texts None stands for that."""
    return one is None or (isinstance(one, Tensor) and bool(one.isnan().any()))


def refused(row: Encoded) -> NotNumbers:
    return NotNumbers(row.row)
