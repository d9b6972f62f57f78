"""`demos:k=4,choose=balanced,order=mixed`: which training rows stand in front of a query, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from tunescope.errors import UserError
from tunescope.methods.text_form import SIGNS
from tunescope.system import escapes
from tunescope.tasks.task import labelled

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.tasks.prompts.chain import Chain
    from tunescope.tasks.prompts.templates import Ids
    from tunescope.tasks.task import Task

Set = tuple[int, ...]  # training rows in the order in which they are shown

NAME = "demos"
ORDERS = 24  # tried where none are asked for: all of four demonstrations


@dataclass(frozen=True)
class Demos:
    """Demonstrations in front of every query.

    k: of each class; of all, where there are no classes.
    choose: balanced (k random rows of each class; the default where there are classes), random (k times classes rows,
        whatever their class), diverse (as many that cover the training rows), nearest (for every query the rows most
        like it), similar (for every query k random ones of the half of each class that is most like it).
    encoder: the folder or name of the model whose states say what is alike; "" is the frozen model itself.
    sets: how many draws of demonstrations each query is answered with; the labels' scores are averaged.
    order: mixed (by the seed), entropy (that under which the model's answers to inputs of its own making spread best
        over the labels), best (that with the best development score). None: mixed; nearest has an order of its own.
    orders: how many are tried, or all.
    calibrate: divide what the model answers to inputs without content out of its answers.
    """

    k: int = 4
    choose: Literal["balanced", "random", "diverse", "nearest", "similar"] | None = None
    encoder: str = ""
    sets: int = 1
    order: Literal["mixed", "entropy", "best"] | None = None
    orders: int | Literal["all"] | None = None
    calibrate: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UserError(f"demos:k={self.k}: at least one demonstration; type demos:k=4")
        if self.sets < 1:
            raise UserError(f"{self}: at least one set of demonstrations; type demos:k=1,choose=similar,sets=16")
        if max(self.sets, self.k) > 1000:
            raise UserError(f"{self}: k and sets are at most 1000; type demos:k=4")
        if self.orders is not None and not self.tries:
            raise UserError(f"{self}: orders is how many order=entropy or order=best try; add one of them, or drop it.")
        if isinstance(self.orders, int) and self.orders < 2:
            raise UserError(f"{self}: at least 2 orders, or orders=all; type demos:k=4,order=best,orders={ORDERS}")
        if self.encoder and not self.compares:
            raise UserError(
                f"{self}: encoder says which rows are alike, and choose={self.choose or 'balanced'} does not ask; "
                "drop it, or type choose=similar, nearest or diverse."
            )
        self._check_own()

    def _check_own(self) -> None:
        """UserError for what has no effect where every query has demonstrations of its own."""
        if self.sets > 1 and self.choose in ("nearest", "diverse"):
            raise UserError(
                f"{self}: sets draws demonstrations several times, and choose={self.choose} has one answer; "
                "drop sets, or type choose=similar, balanced or random."
            )
        if self.choose == "nearest" and self.order:
            raise UserError(
                f"{self}: choose=nearest gives every query demonstrations of its own, in the order of their "
                "similarity; order has no effect on it. Drop order, or choose otherwise."
            )
        if self.each and self.tries:
            raise UserError(
                f"{self}: every query has demonstrations of its own, so there is no one block to put into the order "
                f"order={self.order}; drop it."
            )

    @property
    def tries(self) -> bool:
        """Whether orders are tried."""
        return self.order in ("entropy", "best")

    @property
    def compares(self) -> bool:
        """Whether it is asked which rows are alike."""
        return self.choose in ("similar", "nearest", "diverse")

    @property
    def draws(self) -> bool:
        """Whether another seed shows other rows."""
        return self.choose != "nearest"

    @property
    def each(self) -> bool:
        """Whether every query has demonstrations of its own."""
        return self.choose in ("nearest", "similar") or self.sets > 1

    def __str__(self) -> str:
        """As typed; what is at its default is left out, but for k."""
        given = [f"{one.name}={_typed(getattr(self, one.name))}" for one in fields(self) if _is_said(self, one)]
        return f"{NAME}:{','.join(given)}"


def count(demos: Demos, task: Task) -> int:
    """How many demonstrations stand in front of a query."""
    return demos.k * (len(labelled(task).labels) if task.is_labelled else 1)


def _typed(value: object) -> str:
    """As it is typed: true and false in small letters, and in a path what would end it behind a backslash."""
    return str(value).lower() if isinstance(value, bool) else escapes.written(str(value), SIGNS)


def _is_said(demos: Demos, field: Field[Any]) -> bool:
    return field.name == "k" or getattr(demos, field.name) != field.default


@dataclass(frozen=True)
class Source:
    """What sets are drawn from.

    groups: what is drawn from -> training rows: each class, or all rows where classes do not count. take: rows of
    each group in a set. states: part -> (rows, width), of length 1; empty where nothing is compared. inputs: a hash of
    what each training row asks, its answer aside.
    """

    groups: Mapping[str, Sequence[int]]
    take: int
    states: Mapping[str, Tensor]
    inputs: Sequence[str]


@dataclass(frozen=True)
class Shown:
    """Training rows in the order in which they stand in front, and what trying orders has found."""

    rows: tuple[int, ...]
    orders: dict[str, Any] | None = None


@dataclass
class Kept:
    """What was drawn on a bench, so that it is drawn once.

    blocks: the block in front of all queries, by demonstrations, chain and seed. sources: what each query's own are
    drawn from. fronts: set -> row -> tokens, by demonstrations, task, part, seed and whether the sequence has begun.
    """

    blocks: dict[tuple[Demos, Chain | None, int], Shown] = field(default_factory=dict)
    sources: dict[Demos, Source] = field(default_factory=dict)
    fronts: dict[tuple[Demos, str, str, int, str | None], list[list[Ids]]] = field(default_factory=dict)
