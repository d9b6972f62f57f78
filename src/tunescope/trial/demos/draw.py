"""Which training rows stand in front of a query: of one block for all, or drawn for each query."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tunescope.data.splits import as_read, key_of
from tunescope.errors import UserError
from tunescope.tasks.task import labelled
from tunescope.trial.demos.spec import Demos, Set, Source, count

if TYPE_CHECKING:
    from tunescope.tasks.task import Task
    from tunescope.trial.bench import Bench


def drawn(demos: Demos, bench: Bench, seed: int) -> tuple[int, ...]:
    """The training rows that the seed draws, in their mixed order; where each query has its own, one of the first
    development row's sets.

    Raises:
        UserError: there are not so many.
    """
    from tunescope.tasks import demonstration_rows

    rows, number = bench.splits.train, count(demos, bench.task)
    if demos.each:
        return sets_of(demos, bench, "dev", 0, Random(seed))[0]
    if demos.choose == "diverse":
        return tuple(demonstration_rows.diverse(bench.states("train", demos.encoder), number, seed))
    if demos.choose == "random" or not bench.task.is_labelled:
        return tuple(demonstration_rows.uniform(len(rows), number, seed))
    labels = [labelled(bench.task).label_of(row, index) for index, row in enumerate(rows)]
    return tuple(demonstration_rows.balanced(labels, demos.k, seed))


def text(bench: Bench, task: Task, rows: tuple[int, ...]) -> str:
    """These training rows solved, in this order, so that a query can follow directly; in a chat behind its head."""
    return task.begins + solved(bench, task, rows)


def solved(bench: Bench, task: Task, rows: tuple[int, ...]) -> str:
    """The same, behind other text."""
    return "".join(task.demonstrations([bench.splits.train[index]], 1, 0) for index in rows)


def source(demos: Demos, bench: Bench) -> Source:
    """What the demonstrations of this bench are drawn from; compared once, with nothing attached to the model."""
    from tunescope.tasks.demonstration_rows import unit
    from tunescope.trial.plan import PARTS

    if demos not in bench.demos.sources:
        task, rows = bench.task, bench.splits.train
        groups: dict[str, list[int]] = {}
        by_class = task.is_labelled and demos.choose not in ("nearest", "random")
        for index, row in enumerate(rows):
            groups.setdefault(
                f"label '{labelled(task).label_of(row, index)}'" if by_class else "the training rows", []
            ).append(index)
        states = {part: unit(bench.states(part, demos.encoder)) for part in PARTS} if demos.compares else {}
        inputs = [key_of(as_read(row, task.question()), task.question()) for row in rows]
        bench.demos.sources[demos] = Source(groups, demos.k if by_class else count(demos, task), states, inputs)
    return bench.demos.sources[demos]


def sets_of(demos: Demos, bench: Bench, part: str, index: int, random: Random) -> list[Set]:
    """`demos.sets` sets for a row of a part; a training row, and one that asks the same, is never in its own.

    A training row has one set. Of a group the half most like the query stays, rounded down, the row itself counted
    before it is left out.

    Raises:
        UserError: a group has too few rows.
    """
    from tunescope.tasks.demonstration_rows import closest

    given = source(demos, bench)
    similar = given.states["train"] @ given.states[part][index] if given.states else None
    kept: list[list[int]] = []
    for name, group in given.groups.items():
        members = [row for row in group if part != "train" or given.inputs[row] != given.inputs[index]]
        most = len(group) // 2 if demos.choose == "similar" else len(members)
        if min(most, len(members)) < given.take:
            raise UserError(_too_few(demos, name, len(group), min(most, len(members)), given.take))
        if similar is not None:
            members = closest(similar, members, given.take if demos.choose == "nearest" else most)
        kept.append(members)
    if demos.choose == "nearest":
        return [tuple(kept[0][::-1])]
    return [_one_set(kept, given.take, random) for _ in range(1 if part == "train" else demos.sets)]


def _one_set(kept: Sequence[Sequence[int]], take: int, random: Random) -> Set:
    rows = [row for members in kept for row in random.sample(members, take)]
    random.shuffle(rows)
    return tuple(rows)


def _too_few(demos: Demos, name: str, there: int, left: int, take: int) -> str:
    what = "the half most like a query" if demos.choose == "similar" else "what asks something else than the query"
    return (
        f"{demos}: {take} demonstrations are asked for from {what} of {name}: {left} of {there} rows. "
        "Take a smaller k, or give more training rows."
    )
