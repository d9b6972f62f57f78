"""What a task is: rows in, a loss to train on, predictions with the statistics of a metric out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from tunescope.tasks.prompts.demonstrations import Demonstration

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Rows = Sequence[Mapping[str, Any]]
KINDS = f"{__package__}.kinds."  # in front of the name of a file there


@dataclass(frozen=True)
class Encoded:
    """One row, tokenised. ``cut`` is how many characters of the input did not fit and were left out."""

    row: int  # line in its file, from 1
    input_ids: tuple[int, ...]  # decoder: the prompt; encoder-decoder: the encoder side; encoder: everything
    target_ids: tuple[int, ...]  # tokens to be produced; () for a head
    label: int | None
    references: tuple[str, ...]
    source: str  # what fills the template, to be shown
    cut: int = 0
    slot: int | None = None  # an encoder that answers in words: where in input_ids its mask stands
    lead: tuple[int, ...] = ()  # encoder-decoder: what the decoder's side is given before the target
    index: int | None = field(default=None, compare=False)  # its row's number, from 0, among those that were given


def with_front(front: Sequence[int], row: Encoded) -> Encoded:
    """The row as one sequence with these tokens in front, its mask where it then is."""
    slot = None if row.slot is None else row.slot + len(front)
    return replace(row, input_ids=(*front, *row.input_ids), slot=slot)


@dataclass(frozen=True)
class Prediction:
    """What the model answered to one row, and the sufficient statistics of the metric for it.

    figures: numbers on how the answer was had, of which results show the mean. shares: of the most probable labels, the
    highest first, the probability among all labels.
    """

    row: int
    text: str
    stats: tuple[float, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


class Task(ABC):
    """A frozen dataclass of settings. ``prepare`` returns the copy that knows what the data says.

    A kind of task is one file of the folder `kinds` with one such class, and its name is the file's. A field with an
    `Option` is set from the command line: `text: Annotated[str, Option("the field with the text.")] = "text"`.

    about: behind the kind's name where kinds are listed.
    writes: whether answers are texts, compared with references.
    is_labelled: whether each row has one of K labels; then it is a `Labelled`.
    reads_steps: whether an answer can be read behind steps; then it has the fields `chain`, `shown`, `taught`, `seed`,
        and `steps`, the field of a row that has them.
    also: metrics beside the first, told of what was written on the test set.
    """

    about: ClassVar[str] = ""
    writes: ClassVar[bool] = False
    is_labelled: ClassVar[bool] = False
    reads_steps: ClassVar[bool] = False

    metric: str
    template: str
    steps: str
    max_new_tokens: int | None  # of an answer that is written; `prepare` says how many where nobody did
    also: tuple[str, ...] = ()
    lowercase: bool = False

    @classmethod
    def usual(cls, given: Mapping[str, Any], model_kind: str) -> dict[str, Any]:
        """Field -> value, of fields whose default depends on the kind of model or on the fields that are given."""
        return {}

    @property
    def kind(self) -> str:
        """The name on the command line: of the file in `kinds` that its class is in, or the nearest it is made of."""
        files = (one.__module__.removeprefix(KINDS) for one in type(self).__mro__ if one.__module__.startswith(KINDS))
        return next(files, type(self).__name__)

    @property
    def in_words(self) -> bool:
        """Whether label words answer, compared by their probabilities."""
        return False

    @property
    def begins(self) -> str:
        """What stands before the first demonstration, once: the head of a chat."""
        return ""

    @property
    @abstractmethod
    def needs_head(self) -> int | None:
        """How many labels the classification head must have; None where the model answers in words."""

    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The row's fields that make up the input, in the order of the template."""

    def question(self) -> tuple[str, ...]:
        """The row's fields in which rows are equal that ask the same."""
        return self.fields()

    @abstractmethod
    def prepare(self, splits: Mapping[str, Rows], tokenizer: PreTrainedTokenizerBase, *, model_kind: str) -> Task:
        """This task with what the training rows decide (labels, lengths), checked against the other parts.

        Raises:
            UserError: a field is missing, a label is unknown, or label words cannot be told apart.
        """

    @abstractmethod
    def encode(
        self,
        rows: Rows,
        tokenizer: PreTrainedTokenizerBase,
        *,
        model_kind: str,
        behind: str | None = None,
        train: bool = False,
        room: int | None = None,
    ) -> list[Encoded]:
        """The rows as token ids.

        Args:
            model_kind: "decoder", "encoder" or "encoder-decoder".
            behind: the text in front that has begun the sequence, of which its end counts: a row behind the end of a
                line begins as any line does, without the space that some tokenizers (Llama 2's) put before a text.
                "" where what has begun it is no text; None where nothing has.
            train: one item a row; otherwise one item a distinct input, with all its references.
            room: positions a row may use, its target included where both share them; what is over is cut
                from the end of the input field, so that the end of the template always survives.
        """

    def as_question(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row itself, if it has an answer; else with any that can be read, for what is asked does not depend on it.

        A kind that leaves this as it is asks no row without an answer.
        """
        return row

    @abstractmethod
    def loss(self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase) -> Tensor:
        """Scalar: mean cross-entropy over all labelled tokens (or rows, with a head) of the batch."""

    @abstractmethod
    def row_losses(
        self, model: PreTrainedModel, batch: Sequence[Encoded], tokenizer: PreTrainedTokenizerBase
    ) -> Tensor:
        """(rows,): the sum of the cross-entropy over each row's labelled tokens (or of its label, with a head)."""

    @abstractmethod
    def predict(
        self,
        model: PreTrainedModel,
        rows: Sequence[Encoded],
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_size: int = 32,
    ) -> list[Prediction]:
        """One prediction an item, in the order given; no gradients, no dropout."""

    @abstractmethod
    def demonstrations(self, rows: Rows, k: int, seed: int) -> str:
        """A block of solved examples, ending so that a query can follow directly."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The settings as JSON, with what they imply in ``notes``."""


class Labelled(Task):
    """A task whose rows each have one of K labels, answered by a word for each or by a head.

    label, text: the fields of the label, and of the text, which is cut where it is too long. words: label -> its word.
    prior: what each label's probability is divided by before they are compared; {}, nothing.
    """

    is_labelled: ClassVar[bool] = True

    label: str
    text: str
    words: Mapping[str, str]
    prior: Mapping[str, float]

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """All labels, in the order of their numbers."""

    @abstractmethod
    def label_of(self, row: Mapping[str, Any], index: int) -> str:
        """The row's label as text, without white space around it."""

    @abstractmethod
    def counts(self, rows: Rows) -> dict[str, int]:
        """How many rows each label has."""

    @abstractmethod
    def word_ids(self, tokenizer: PreTrainedTokenizerBase, model_kind: str) -> dict[str, tuple[int, ...]]:
        """Label -> token ids of its word, in the labels' order; {} where a head answers."""

    @abstractmethod
    def answered(self, rows: Sequence[Encoded], scores: Tensor) -> list[Prediction]:
        """Each row answered with the label of its highest score, the first of equals. scores: (rows, labels), logs."""

    @abstractmethod
    def demonstrated(self, rows: Rows, k: int, seed: int) -> list[Demonstration]:
        """``k`` random rows of each label, mixed, each the filled template and its label word."""


def labelled(task: Task) -> Labelled:
    """The task, of which is known that each row has one of K labels."""
    assert isinstance(task, Labelled)
    return task


def changed(task: Task, **fields: object) -> Task:
    """The task with other values of these fields."""
    made: Task = replace(cast(Any, task), **fields)
    return made
