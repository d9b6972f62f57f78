"""Greedy coordinate gradient: random swaps among the tokens that the gradient prefers (Zou et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tunescope.search.loop import Within, drive
from tunescope.search.methods._start import From, begun
from tunescope.search.methods._swaps import best, shortlist, swapped
from tunescope.search.objective import Objective
from tunescope.search.search import Found, Say, Search, check_positive
from tunescope.trial.bench import Bench

CITATION = """\
@misc{zou2023universal,
  author = {Zou, Andy and Wang, Zifan and Carlini, Nicholas and Nasr, Milad and Kolter, J. Zico
    and Fredrikson, Matt},
  title = {Universal and Transferable Adversarial Attacks on Aligned Language Models},
  year = {2023},
  eprint = {2307.15043},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class GCG(Search):
    """The best of many random swaps among the tokens that the gradient prefers.

    arXiv:2307.15043, Algorithm 1: of `swaps` single swaps, each of a random position for a random one of the `top`
    tokens that the gradient prefers there, the one with the least loss becomes the prompt, even where the prompt was
    better, as published. init_from, ban, batch: as in pez.
    """

    length: int = 10
    top: int = 64
    swaps: int = 32
    init_from: From = "vocabulary"
    batch: int = 16
    ban: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_positive(self, "top", "swaps", "batch")

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        return drive(bench, Within(self.length, self.ban), self.moves, passes, seed, say)

    def moves(self, goal: Objective, generator: torch.Generator, _passes: int) -> Iterator[Tensor]:
        prompt = begun(goal, self.init_from, generator)
        while True:
            batch = goal.batch(self.batch, generator)
            chosen = shortlist(goal.slope(prompt, batch).gradient, goal.table, self.top).cpu()
            positions = torch.randint(goal.length, (self.swaps,), generator=generator)
            ranks = torch.randint(chosen.shape[1], (self.swaps,), generator=generator)
            found = best(goal, swapped(prompt, positions, chosen[positions, ranks]), batch)
            prompt = prompt if found is None else found[0]
            yield prompt
