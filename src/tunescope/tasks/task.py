"""What a task is: rows in, a loss to train on, predictions with the statistics of a metric out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Encoded:
    """One row, tokenised. ``cut`` is how many characters of the input did not fit and were left out."""

    row: int  # line in its file, from 1
    input_ids: tuple[int, ...]  # decoder: the prompt; encoder-decoder: the encoder side; encoder: everything
    target_ids: tuple[int, ...]  # tokens to be produced; () for a head
    label: int | None
    references: tuple[str, ...]
    source: str  # rows with equal sources are one input with several references
    cut: int = 0
    slot: int | None = None  # an encoder that answers in words: where in input_ids its mask stands
    lead: tuple[int, ...] = ()  # encoder-decoder: what the decoder's side is given before the target


def with_front(front: Sequence[int], row: Encoded) -> Encoded:
    """The row as one sequence with these tokens in front, its mask where it then is."""
    slot = None if row.slot is None else row.slot + len(front)
    return replace(row, input_ids=(*front, *row.input_ids), slot=slot)


@dataclass(frozen=True)
class Prediction:
    """What the model answered to one row, and the sufficient statistics of the metric for it.

    figures: numbers on how the answer was had, of which results show the mean.
    """

    row: int
    text: str
    stats: tuple[float, ...]
    figures: Mapping[str, float] = field(default_factory=dict)


class Task(ABC):
    """A frozen dataclass of settings. ``prepare`` returns the copy that knows what the data says.

    writes: whether answers are texts, compared with references; labels otherwise.
    also: metrics beside the first, told of what was written on the test set.
    """

    metric: str
    also: tuple[str, ...] = ()
    lowercase: bool = False
    writes: ClassVar[bool] = False

    @property
    @abstractmethod
    def needs_head(self) -> int | None:
        """How many labels the classification head must have; None where the model answers in words."""

    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The row's fields that make up the input, in the order of the template."""

    @abstractmethod
    def prepare(self, splits: Mapping[str, Rows], tokenizer: Any, *, model_kind: str) -> Task:
        """This task with what the training rows decide (labels, lengths), checked against the other parts.

        Raises:
            UserError: a field is missing, a label is unknown, or label words cannot be told apart.
        """

    @abstractmethod
    def encode(
        self,
        rows: Rows,
        tokenizer: Any,
        *,
        model_kind: str,
        bos: bool = True,
        train: bool = False,
        room: int | None = None,
    ) -> list[Encoded]:
        """The rows as token ids.

        Args:
            model_kind: "decoder", "encoder" or "encoder-decoder".
            bos: False where a text context in front has already begun the sequence.
            train: one item a row; otherwise one item a distinct input, with all its references.
            room: positions a row may use, its target included where both share them; what is over is cut
                from the end of the input field, so that the end of the template always survives.
        """

    @abstractmethod
    def loss(self, model: Any, batch: Sequence[Encoded], tokenizer: Any) -> Tensor:
        """Scalar: mean cross-entropy over all labelled tokens (or rows, with a head) of the batch."""

    @abstractmethod
    def row_losses(self, model: Any, batch: Sequence[Encoded], tokenizer: Any) -> Tensor:
        """(rows,): the sum of the cross-entropy over each row's labelled tokens (or of its label, with a head)."""

    @abstractmethod
    def predict(self, model: Any, rows: Sequence[Encoded], tokenizer: Any, *, batch_size: int = 32) -> list[Prediction]:
        """One prediction an item, in the order given; no gradients, no dropout."""

    @abstractmethod
    def demonstrations(self, rows: Rows, k: int, seed: int) -> str:
        """A block of solved examples, ending so that a query can follow directly."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The settings as JSON, with what they imply in ``notes``."""
