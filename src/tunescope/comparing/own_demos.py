"""Demonstrations of each query's own: which rows they are drawn from, and the query behind them.

LM-BFF (Gao et al. 2021, arXiv:2012.15723, section 6): for each query one row of each class, drawn from the half of the
class that is most like it, drawn anew whenever a training row is looked at, and several times for a row that is tested.
Theirs stand behind the query, in the order of the classes; ours in front, where a decoder can read them, mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tunescope.comparing.demos import Demos, count, text
from tunescope.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from tunescope.comparing.bench import Bench
    from tunescope.tasks.prompts import Ids
    from tunescope.tasks.task import Encoded

Set = tuple[int, ...]  # training rows in the order in which they are shown


@dataclass(frozen=True)
class Source:
    """What sets are drawn from.

    groups: what is drawn from -> training rows: each class, or all rows where classes do not count. take: rows of
    each group in a set. states: part -> (rows, width), of length 1; empty where nothing is compared.
    """

    groups: Mapping[str, Sequence[int]]
    take: int
    states: Mapping[str, Tensor]


def source(demos: Demos, bench: Bench) -> Source:
    """What the demonstrations of this bench are drawn from; compared once, with nothing attached to the model."""
    from tunescope.comparing.plan import PARTS
    from tunescope.tasks import Classification
    from tunescope.tasks.choosing import unit

    key = f"source of {demos}"
    if key not in bench.shown:
        task, rows = bench.task, bench.splits.train
        groups: dict[str, list[int]] = {}
        by_class = isinstance(task, Classification) and demos.choose not in ("nearest", "random")
        for index, row in enumerate(rows):
            groups.setdefault(f"label '{task.label_of(row, index)}'" if by_class else "the training rows", []).append(
                index
            )
        states = {part: unit(bench.states(part, demos.encoder)) for part in PARTS} if demos.compares else {}
        bench.shown[key] = Source(groups, demos.k if by_class else count(demos, task), states)
    found: Source = bench.shown[key]
    return found


def sets_of(demos: Demos, bench: Bench, part: str, index: int, random: Random) -> list[Set]:
    """`demos.sets` sets for a row of a part; a training row is never in its own, and has one.

    Of a group the half most like the query stays, rounded down, the row itself counted before it is left out.

    Raises:
        UserError: a group has too few rows.
    """
    from tunescope.tasks.choosing import closest

    given = source(demos, bench)
    similar = given.states["train"] @ given.states[part][index] if given.states else None
    kept: list[list[int]] = []
    for name, group in given.groups.items():
        members = [row for row in group if part != "train" or row != index]
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
    what = "the half most like a query" if demos.choose == "similar" else "what is not the query itself"
    return (
        f"{demos}: {take} demonstrations are asked for from {what} of {name}: {left} of {there} rows. "
        "Take a smaller k, or give more training rows."
    )


@dataclass(frozen=True)
class Asking:
    """How an arm asks with demonstrations of each query's own.

    taken: positions of what is attached. begun: whether that begins the sequence.
    """

    demos: Demos
    bench: Bench
    task: Any
    taken: int
    begun: bool

    def fronts(self, part: str, seed: int) -> list[list[Ids]]:
        """set -> row -> the tokens of its demonstrations, drawn by the seed; the same whenever they are asked for."""
        shown, key = self.bench.shown, f"{self.demos} {self.task!r} {part} {seed} {self.begun}"
        if key not in shown:
            random = Random(f"{seed} {part}")
            rows = range(len(self.bench.encoded(part, bos=False, room=None, task=self.task)))
            sets = [sets_of(self.demos, self.bench, part, index, random) for index in rows]
            shown[key] = [[self._tokens(one) for one in some] for some in zip(*sets, strict=True)]
        found: list[list[Ids]] = shown[key]
        return found

    def rows(self, part: str, seed: int) -> list[list[Encoded]]:
        """set -> the rows of a part behind its demonstrations, cut beside the longest of them."""
        from tunescope.tasks.task import behind

        fronts = self.fronts(part, seed)
        rows = self.bench.encoded(part, bos=False, room=self.room(fronts), task=self.task)
        return [[behind(front, row) for front, row in zip(one, rows, strict=True)] for one in fronts]

    def drawn_now(self, chosen: Sequence[int]) -> list[Encoded]:
        """Training rows behind demonstrations drawn by torch's generator, which a resumed run goes on with."""
        import torch

        from tunescope.tasks.task import behind

        random = Random(int(torch.randint(2**62, ())))
        fronts = [self._tokens(sets_of(self.demos, self.bench, "train", index, random)[0]) for index in chosen]
        bench, some = self.bench, [self.bench.splits.train[index] for index in chosen]
        left = self.room([fronts])
        rows = self.task.encode(some, bench.tokenizer, model_kind=bench.kind, bos=False, train=True, room=left)
        return [behind(front, row) for front, row in zip(fronts, rows, strict=True)]

    def priors(self, part: str, seed: int) -> Tensor:
        """(sets, rows, labels): what the model answers to inputs without content behind each set."""
        from tunescope.tasks import calibrating, ensemble

        bench, fronts = self.bench, self.fronts(part, seed)
        left = self.room(fronts)
        asked = calibrating.contentless(self.task, bench.tokenizer, model_kind=bench.kind, bos=False, room=left)
        return ensemble.priors(self.task, bench.model, fronts, asked, bench.tokenizer)

    def room(self, fronts: Sequence[Sequence[Ids]]) -> int | None:
        from tunescope.comparing.bench import room

        return room(self.bench, self.taken + max(len(front) for one in fronts for front in one))

    def _tokens(self, rows: Set) -> Ids:
        from tunescope.contexts.text import token_ids
        from tunescope.tasks import prompts

        tokenizer, words = self.bench.tokenizer, text(self.bench, self.task, rows)
        return prompts.ids(tokenizer, [words])[0] if self.begun else tuple(token_ids(tokenizer, words))


def passes(demos: Demos) -> int:
    """Times that the model reads a query to answer it, inputs without content among them."""
    from tunescope.tasks.calibrating import CONTENT_FREE

    return demos.sets * (1 + demos.calibrate * len(CONTENT_FREE))
