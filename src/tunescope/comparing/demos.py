"""`demos:k=4,choose=balanced,order=mixed`: which training rows stand in front of a query, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.comparing.bench import Bench

NAME = "demos"
ORDERS = 24  # tried where none are asked for: all of four demonstrations


@dataclass(frozen=True)
class Demos:
    """Demonstrations in front of every query.

    k: of each class; of all, where there are no classes.
    choose: balanced (k random rows of each class; the default where there are classes), random (k times classes rows,
        whatever their class), diverse (as many that cover the training rows), nearest (for every query the rows most
        like it, by the frozen model's own states).
    order: mixed (by the seed), entropy (that under which the model's answers to inputs of its own making spread best
        over the labels), best (that with the best development score). None: mixed; nearest has an order of its own.
    orders: how many are tried, or all.
    calibrate: divide what the model answers to inputs without content out of its answers.
    """

    k: int = 4
    choose: Literal["balanced", "random", "diverse", "nearest"] | None = None
    order: Literal["mixed", "entropy", "best"] | None = None
    orders: int | Literal["all"] | None = None
    calibrate: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UserError(f"demos:k={self.k}: at least one demonstration; type demos:k=4")
        if self.orders is not None and not self.tries:
            raise UserError(f"{self}: orders is how many order=entropy or order=best try; add one of them, or drop it.")
        if isinstance(self.orders, int) and self.orders < 2:
            raise UserError(f"{self}: at least 2 orders, or orders=all; type demos:k=4,order=best,orders={ORDERS}")
        if self.choose == "nearest":
            for option in ("order", "calibrate"):
                if getattr(self, option):
                    raise UserError(
                        f"{self}: choose=nearest gives every query demonstrations of its own, in the order of their "
                        f"similarity; {option} has no effect on it. Drop {option}, or choose otherwise."
                    )

    @property
    def tries(self) -> bool:
        """Whether orders are tried."""
        return self.order in ("entropy", "best")

    @property
    def each(self) -> bool:
        """Whether every query has demonstrations of its own."""
        return self.choose == "nearest"

    def __str__(self) -> str:
        """As typed; what is at its default is left out, but for k."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        given = [f"{name}={str(value).lower()}" for name, value in said.items() if value or name == "k"]
        return f"{NAME}:{','.join(given)}"


def check(demos: Demos, bench: Bench, *, alone: bool) -> None:
    """UserError for an option that has no effect on this task or model. alone: nothing else is in the arm."""
    from tunescope.comparing import ordering
    from tunescope.tasks import Classification

    task = bench.task
    if demos.each and not alone:
        raise UserError(
            f"{demos}: every query has demonstrations of its own, so nothing else can be trained or attached "
            "with them; type it alone."
        )
    labelled = isinstance(task, Classification)
    needing = {
        "choose=balanced": demos.choose == "balanced",
        "order=entropy": demos.order == "entropy",
        "calibrate=true": demos.calibrate,
    }
    for option, asked in needing.items():
        if asked and not labelled:
            raise UserError(f"{demos}: {option} is about labels, and this task has none; drop it.")
    if bench.kind == "encoder" and (demos.tries or demos.calibrate):
        option = "calibrate=true" if demos.calibrate else f"order={demos.order}"
        raise UserError(f"{demos}: {option} reads the frozen model's answers, and an encoder has none; drop it.")
    if demos.order == "entropy" and bench.kind != "decoder":
        raise UserError(f"{demos}: order=entropy lets the model write inputs of its own, for which it takes a decoder.")
    if demos.tries:
        ordering.check(demos, task)


def count(demos: Demos, task: Any) -> int:
    """How many demonstrations stand in front of a query."""
    from tunescope.tasks import Classification

    return demos.k * (len(task.labels) if isinstance(task, Classification) else 1)


def drawn(demos: Demos, bench: Bench, seed: int) -> tuple[int, ...]:
    """The training rows that the seed draws, in their mixed order; with `nearest`, those of the first development row.

    Raises:
        UserError: there are not so many.
    """
    from tunescope.tasks import Classification, choosing

    rows, number = bench.splits.train, count(demos, bench.task)
    if demos.each:
        return tuple(choosing.nearest(bench.states("dev")[:1], bench.states("train"), number)[0])
    if demos.choose == "diverse":
        return tuple(choosing.diverse(bench.states("train"), number, seed))
    if demos.choose == "random" or not isinstance(bench.task, Classification):
        return tuple(choosing.uniform(len(rows), number, seed))
    labels = [bench.task.label_of(row, index) for index, row in enumerate(rows)]
    return tuple(choosing.balanced(labels, demos.k, seed))


def text(bench: Bench, task: Any, rows: tuple[int, ...]) -> str:
    """These training rows solved, in this order, so that a query can follow directly."""
    return "".join(task.demonstrations([bench.splits.train[index]], 1, 0) for index in rows)


def own_prompts(demos: Demos, bench: Bench, task: Any, part: str) -> list[Any]:
    """The rows of a part, encoded with the demonstrations of each in front.

    What is over the model's positions is cut from the end of the input, beside the longest of the demonstrations.
    """
    from tunescope.comparing.bench import room
    from tunescope.contexts.text import token_ids
    from tunescope.tasks import choosing

    near = choosing.nearest(bench.states(part), bench.states("train"), count(demos, bench.task))
    fronts = [tuple(token_ids(bench.tokenizer, text(bench, task, tuple(rows)))) for rows in near]
    queries = bench.encoded(part, bos=False, room=room(bench, max(map(len, fronts))), task=task)
    return [replace(query, input_ids=front + query.input_ids) for front, query in zip(fronts, queries, strict=True)]
