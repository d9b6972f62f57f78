"""Prompts drawn at random, the one with the least loss so far kept: the floor for every other search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tunescope.search.loop import Within, drive
from tunescope.search.methods._swaps import best
from tunescope.search.objective import Objective
from tunescope.search.search import Found, Say, Search, check_positive
from tunescope.trial.bench import Bench


@dataclass(frozen=True)
class RandomPrompts(Search):
    """Each step draws `candidates` prompts of allowed tokens and asks the same `batch` rows of them all.

    Those that do not come back from their text as they are cost nothing and are dropped, as with every other search.
    ban: strings that no prompt may hold.
    """

    length: int = 10
    candidates: int = 16
    batch: int = 16
    ban: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_positive(self, "candidates", "batch")

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        return drive(bench, Within(self.length, self.ban), self.moves, passes, seed, say)

    def moves(self, goal: Objective, generator: torch.Generator, _passes: int) -> Iterator[Tensor]:
        rows = goal.batch(self.batch, generator)
        kept, least = None, float("inf")
        while True:
            drawn = torch.randint(len(goal.table), (self.candidates, self.length), generator=generator)
            found = best(goal, drawn, rows)
            if found is None:  # the pass that it costs ends the search where no prompt ever comes back
                goal.passes += 1
            elif found[1] < least:
                kept, least = found
            yield drawn[0] if kept is None else kept
