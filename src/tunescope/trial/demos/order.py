"""In which order demonstrations stand: several are tried, one is taken, and how much order alone moves is kept.

`best` takes the order with the best score on the development rows. `entropy` is GlobalE of Lu et al. 2022
(arXiv:2104.08786, section 3): the model itself writes a probing set, one sample behind each order; under each order it
answers all of it, and the order whose answers spread most evenly over the labels is taken. Ties go to the order that
was tried first, which is the one drawn by the seed. Theirs takes the best four orders and reports their mean, samples
at another temperature, and discards what its template does not match.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.trial.demos.spec import ORDERS, Demos, count

if TYPE_CHECKING:
    from tunescope.tasks.task import Task
    from tunescope.trial.bench import Bench

MOST = 24  # orders, where all are asked for
WRITTEN = 2**53  # the most orders that are told as a number: what JSON is sure to keep

Order = tuple[int, ...]
#: the training rows in an order -> the predictions for rows of the task, with them in front
Answer = Callable[[Order, Sequence[Any] | None], Sequence[Any]]


@dataclass(frozen=True)
class Ordered:
    """The order taken, as training rows; `dev` has the development score of every order tried, its own at `chosen`."""

    rows: Order
    rule: str
    dev: tuple[float, ...]
    chosen: int
    possible: int
    entropies: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """With the spread of the scores; the deviation is that of the orders tried, not an estimate for others."""
        spread = {"min": min(self.dev), "mean": fmean(self.dev), "max": max(self.dev), "sd": pstdev(self.dev)}
        return {
            "rule": self.rule,
            "tried": len(self.dev),
            "possible": self.possible if self.possible <= WRITTEN else None,
            **spread,
            "chosen": self.chosen,
            "dev": list(self.dev),
            "entropies": list(self.entropies),
        }


def candidates(rows: Order, orders: int | str, seed: int) -> list[Order]:
    """Different orders of the rows: all where there are no more than `orders`, else so many drawn by the seed.

    The first is `rows` as they are.
    """
    possible = math.factorial(len(rows))
    if orders == "all" or possible <= int(orders):
        return list(permutations(rows))
    random, found = Random(seed), {rows: None}
    while len(found) < int(orders):
        found[tuple(random.sample(rows, len(rows)))] = None
    return list(found)


def check(demos: Demos, task: Task) -> None:
    """UserError where all orders are asked for, and they are more than `MOST`; and where there is only one."""
    shown = count(demos, task)
    possible = math.factorial(shown)
    if possible == 1:
        raise UserError(f"{demos}: one demonstration has one order only; drop order, or take a larger k.")
    if demos.orders == "all" and possible > MOST:
        told = f"{possible:,}" if possible <= WRITTEN else f"{shown}!"
        raise UserError(
            f"{demos}: {shown} demonstrations have {told} orders, and at most {MOST} are tried. "
            f"Type orders={MOST}, or a smaller k."
        )


def most(demos: Demos, task: Task) -> int:
    """How many orders are tried."""
    possible = math.factorial(count(demos, task))
    return possible if demos.orders == "all" else min(possible, int(demos.orders or ORDERS))


def ordered(demos: Demos, bench: Bench, rows: Order, seed: int, answers: Answer) -> Ordered:
    """The order that the rule takes, of those tried.

    Args:
        answers: (order, rows or None for the development rows) -> predictions.

    Raises:
        UserError: the model wrote nothing that can be asked.
    """
    from tunescope.data.scores import aggregate
    from tunescope.trial.demos import probing_set

    tried = candidates(rows, demos.orders or ORDERS, seed)
    metric = bench.task.metric
    scores = []
    for order in tried:
        stats = [prediction.stats for prediction in answers(order, None)]
        scores.append(aggregate(metric, stats)[metric])
    entropies: list[float] = []
    if demos.order == "entropy":
        asked = probing_set.written(bench, tried, seed)
        entropies = [entropy([one.text for one in answers(order, asked)]) for order in tried]
    by = entropies or scores
    chosen = by.index(max(by))
    return Ordered(tried[chosen], demos.order or "", tuple(scores), chosen, math.factorial(len(rows)), tuple(entropies))


def entropy(answers: Sequence[str]) -> float:
    """GlobalE: -sum over labels of p log p, p the share of the answers that are the label; natural logarithm."""
    return -sum(n / len(answers) * math.log(n / len(answers)) for n in Counter(answers).values())
