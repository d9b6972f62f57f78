"""AutoPrompt: swaps guided by the gradient (Shin et al. 2020), or projected gradient descent as its baseline form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.search.loop import Within, drive
from tunescope.search.methods._nearest import nearest
from tunescope.search.methods._start import From, begun
from tunescope.search.methods._swaps import best, shortlist, swapped
from tunescope.search.objective import Objective
from tunescope.search.search import Found, Say, Search, check_positive
from tunescope.trial.bench import Bench

CITATION = """\
@inproceedings{shin2020autoprompt,
  author = {Shin, Taylor and Razeghi, Yasaman and Logan IV, Robert L. and Wallace, Eric and Singh, Sameer},
  title = {{AutoPrompt}: Eliciting Knowledge from Language Models with Automatically Generated Prompts},
  booktitle = {EMNLP},
  year = {2020},
  eprint = {2010.15980},
  archivePrefix = {arXiv},
}
"""

TOP, RATE = 10, 100.0


@dataclass(frozen=True)
class AutoPrompt(Search):
    """The best swap at a random position, or projected gradient descent.

    mode "swap" (arXiv:2010.15980, section 2.2): the best of the `top` tokens (10 unless given) that the gradient
    prefers there, if it lowers the loss on the step's rows; the prompt itself is scored beside them. mode "projected"
    (the baseline of Wen et al. 2023): e <- Proj(e - rate * gradient), by Euclidean distance, with a rate of 100 unless
    given; a step that stays nearest to its token changes nothing and is lost, so too small a rate never moves.
    init_from, ban, batch: as in pez.
    """

    length: int = 10
    mode: Literal["swap", "projected"] = "swap"
    top: int | None = None
    rate: float | None = None
    init_from: From = "vocabulary"
    batch: int = 16
    ban: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        idle = "rate" if self.mode == "swap" else "top"
        if getattr(self, idle) is not None:
            raise UserError(f"autoprompt:mode={self.mode} has no use for {idle}={getattr(self, idle)}; leave it out.")
        check_positive(self, *[name for name in ("top", "rate") if getattr(self, name) is not None], "batch")

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        moves = self.swaps if self.mode == "swap" else self.steps
        return drive(bench, Within(self.length, self.ban), moves, passes, seed, say)

    def swaps(self, goal: Objective, generator: torch.Generator, _passes: int) -> Iterator[Tensor]:
        prompt = begun(goal, self.init_from, generator)
        while True:
            batch = goal.batch(self.batch, generator)
            gradient = goal.slope(prompt, batch).gradient
            place = int(torch.randint(goal.length, (1,), generator=generator))
            tokens = shortlist(gradient[place : place + 1], goal.table, self.top or TOP)[0].cpu()
            found = best(goal, swapped(prompt, torch.full((len(tokens),), place), tokens), batch, prompt)
            prompt = prompt if found is None else found[0]
            yield prompt

    def steps(self, goal: Objective, generator: torch.Generator, _passes: int) -> Iterator[Tensor]:
        project = nearest(goal.table, "euclidean")
        prompt = begun(goal, self.init_from, generator)
        while True:
            gradient = goal.slope(prompt, goal.batch(self.batch, generator)).gradient
            prompt = project(goal.table[prompt] - (self.rate or RATE) * gradient)
            yield prompt
