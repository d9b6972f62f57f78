"""One word a class, all different, so that as many rows as can be are answered right: never by trying all k^C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from random import Random

import torch
from torch import Tensor

Columns = tuple[int, ...]
EXACT = 4096  # combinations of all classes' words but the last's, up to which every assignment is tried
STARTS = 24


@dataclass(frozen=True)
class Assignment:
    """Columns: a word for each class. loss: the summed cross-entropy of the rows over those words."""

    columns: Columns
    correct: int
    loss: float


@dataclass(frozen=True)
class WordChoice:
    """scores: (rows, words) log-probabilities, float64. labels: (rows,). shortlists: for each class, its columns."""

    scores: Tensor
    labels: Tensor
    shortlists: tuple[Columns, ...]


def assignments(choice: WordChoice, keep: int, seed: int) -> list[Assignment]:
    """The `keep` best assignments of different words, best first.

    Better is more rows right (of equal scores the earlier class is answered, as everywhere), then the smaller loss,
    then the words that stand earlier in the shortlists. All are tried where the words of all classes but the last have
    at most EXACT combinations. Otherwise STARTS assignments, drawn by `seed`, are each improved, one class or one swap
    at a time, until nothing helps; then the neighbours of the `keep` best are tried until none of them is better. That
    is a search: it may miss the best. Time grows with classes times words, memory with rows times words.
    """
    best = _Best(choice, keep)
    if prod(map(len, choice.shortlists[:-1])) <= EXACT:
        for first in _different(choice.shortlists[:-1]):
            best.add_all(_replaced(choice, (*first, -1), len(first)))
        return best.found()
    draw = Random(seed)
    for number in range(STARTS):
        if (start := _start(choice.shortlists, draw if number else None)) is not None:
            _climbed(choice, start, best)
    tried: set[Columns] = set()
    while left := [one for one in best.found() if one.columns not in tried]:
        tried.add(left[0].columns)
        best.add_all(_neighbours(choice, left[0].columns))
    return best.found()


class _Best:
    """The best assignments so far, in order; memory for `keep` of them."""

    def __init__(self, choice: WordChoice, keep: int) -> None:
        self.ranks = [{column: rank for rank, column in enumerate(one)} for one in choice.shortlists]
        self.keep = keep
        self.kept: dict[Columns, Assignment] = {}

    def order(self, one: Assignment) -> tuple[int, float, tuple[int, ...]]:
        return (
            -one.correct,
            round(one.loss, 9),
            tuple(rank[column] for rank, column in zip(self.ranks, one.columns, strict=True)),
        )

    def add_all(self, some: list[Assignment]) -> None:
        self.kept |= {one.columns: one for one in some}
        self.kept = {one.columns: one for one in sorted(self.kept.values(), key=self.order)[: self.keep]}

    def found(self) -> list[Assignment]:
        return list(self.kept.values())


def _different(shortlists: Sequence[Columns], before: Columns = ()) -> Iterator[Columns]:
    if not shortlists:
        yield before
        return
    for column in shortlists[0]:
        if column not in before:
            yield from _different(shortlists[1:], (*before, column))


def _start(shortlists: Sequence[Columns], draw: Random | None) -> Columns | None:
    """A word for each class, the first that is left or any; None where a draw leaves a class without."""
    chosen: list[int] = []
    for shortlist in shortlists:
        left = [column for column in shortlist if column not in chosen]
        if not left:
            return None
        chosen.append(draw.choice(left) if draw else left[0])
    return tuple(chosen)


def _climbed(choice: WordChoice, start: Columns, best: _Best) -> None:
    """Improve `start` by its best neighbour of one class after the other, until none is better."""
    at, waited, turn = _scored(choice, start), 0, 0
    classes = len(start)
    while waited < classes:
        some = _replaced(choice, at.columns, turn) + _swapped(choice, at.columns, turn)
        best.add_all(some)
        ahead = min(some, key=best.order, default=at)
        waited = 0 if best.order(ahead) < best.order(at) else waited + 1
        at = min(ahead, at, key=best.order)
        turn = (turn + 1) % classes


def _neighbours(choice: WordChoice, columns: Columns) -> list[Assignment]:
    turns = range(len(columns))
    return [one for turn in turns for one in _replaced(choice, columns, turn) + _swapped(choice, columns, turn)]


def _replaced(choice: WordChoice, columns: Columns, turn: int) -> list[Assignment]:
    """The assignments with another word for the class `turn`, scored together."""
    others = [index for index in range(len(columns)) if index != turn]
    taken = {columns[index] for index in others}
    free = [column for column in choice.shortlists[turn] if column not in taken]
    if not free:
        return []
    rivals = choice.scores[:, [columns[index] for index in others]]  # (rows, classes - 1)
    new = choice.scores[:, free]  # (rows, words)
    own_turn = choice.labels == turn
    place = torch.tensor([others.index(int(one)) if one != turn else 0 for one in choice.labels])
    own = rivals.gather(1, place[:, None])  # (rows, 1), of rows of other classes
    index_of = torch.tensor(others)
    earlier = index_of < turn
    won = (new > _highest(rivals[:, earlier])) & (new >= _highest(rivals[:, ~earlier]))
    stands = torch.where(earlier[place][:, None], own >= new, own > new)  # of equal scores the earlier class's counts
    kept = stands & (rivals.argmax(1) == place)[:, None]
    correct = torch.where(own_turn[:, None], won, kept).sum(0)
    total = torch.logaddexp(rivals.logsumexp(1, keepdim=True), new)
    loss = (total - torch.where(own_turn[:, None], new, own)).sum(0)
    return [
        Assignment((*columns[:turn], column, *columns[turn + 1 :]), right, lost)
        for column, right, lost in zip(free, correct.tolist(), loss.tolist(), strict=True)
    ]


def _highest(scores: Tensor) -> Tensor:
    """(rows, 1); minus infinity where there is no class."""
    low = scores.new_full((len(scores), 1), -torch.inf)
    return torch.cat([low, scores], 1).amax(1, keepdim=True)


def _swapped(choice: WordChoice, columns: Columns, turn: int) -> list[Assignment]:
    """The assignments in which the class `turn` and a later one have each other's word, where the shortlists allow."""
    found = []
    for one, other in combinations(range(len(columns)), 2):
        if one == turn and columns[one] in choice.shortlists[other] and columns[other] in choice.shortlists[one]:
            changed = list(columns)
            changed[one], changed[other] = columns[other], columns[one]
            found.append(_scored(choice, tuple(changed)))
    return found


def _scored(choice: WordChoice, columns: Columns) -> Assignment:
    scores = choice.scores[:, list(columns)]
    own = scores.gather(1, choice.labels[:, None])[:, 0]
    correct = int((scores.argmax(1) == choice.labels).sum())
    return Assignment(columns, correct, float((scores.logsumexp(1) - own).sum()))
