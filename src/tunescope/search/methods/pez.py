"""PEZ: a continuous prompt is kept, and the gradient taken at its projection (Wen et al. 2023, arXiv:2302.03668)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tunescope.search.loop import Within, drive
from tunescope.search.methods._nearest import By, nearest
from tunescope.search.methods._start import From, begun
from tunescope.search.objective import Objective
from tunescope.search.search import Found, Say, Search, check_positive
from tunescope.trial.bench import Bench
from tunescope.trial.train import optimizers

CITATION = """\
@misc{wen2023hard,
  author = {Wen, Yuxin and Jain, Neel and Kirchenbauer, John and Goldblum, Micah and Geiping, Jonas
    and Goldstein, Tom},
  title = {Hard Prompts Made Easy: Gradient-Based Discrete Optimization for Prompt Tuning and Discovery},
  year = {2023},
  eprint = {2302.03668},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class PEZ(Search):
    """A continuous prompt that learns from the gradient at its nearest tokens.

    Algorithm 1: P' = Proj(P); P <- P - rate * (gradient of the loss at P'). P itself is never projected.

    keeps: "projected" lets every step end at its tokens instead. All else being PEZ's, that is the control of what PEZ
    adds: the projected steps (AutoPrompt-SGD) that the authors hold it against, and their released code for language
    models.
    nearest: the projection, by cosine as published or by distance. optimizer: what makes a step of the gradient, AdamW
    without decay, Adafactor at a fixed rate as in the authors' code for language models, or the gradient itself.
    fluency: share of the loss that is the prompt's own cross-entropy, for decoders. init_from: random allowed tokens,
    or the label words over and over. ban: strings that no prompt may hold.
    batch: rows of a step.
    """

    length: int = 10
    rate: float = 0.1
    optimizer: Literal["adamw", "adafactor", "sgd"] = "adamw"
    nearest: By = "cosine"
    keeps: Literal["continuous", "projected"] = "continuous"
    fluency: float = 0.0
    init_from: From = "vocabulary"
    batch: int = 16
    ban: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_positive(self, "rate", "batch")

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        return drive(bench, Within(self.length, self.ban, self.fluency), self.moves, passes, seed, say)

    def moves(self, goal: Objective, generator: torch.Generator, _passes: int) -> Iterator[Tensor]:
        project = nearest(goal.table, self.nearest)
        prompt = begun(goal, self.init_from, generator)
        kept = goal.table[prompt].clone()
        plain = self.optimizer == "sgd"
        step = (
            torch.optim.SGD([kept], self.rate)
            if plain
            else optimizers.make(self.optimizer, {"": kept}, {"": self.rate}, 0.0)
        )
        while True:
            kept.grad = goal.slope(prompt, goal.batch(self.batch, generator)).gradient
            step.step()
            prompt = project(kept)
            if self.keeps == "projected":
                kept.copy_(goal.table[prompt])
            yield prompt
