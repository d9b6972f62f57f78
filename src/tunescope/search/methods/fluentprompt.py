"""FluentPrompt: projected Langevin dynamics, noise that fades (Shi et al. 2022, arXiv:2212.10539)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tunescope.search.loop import Within, drive
from tunescope.search.methods._nearest import nearest
from tunescope.search.methods._start import From, begun
from tunescope.search.objective import Objective
from tunescope.search.search import Found, Say, Search, check_positive
from tunescope.trial.bench import Bench

CITATION = """\
@misc{shi2022fluentprompt,
  author = {Shi, Weijia and Han, Xiaochuang and Gonen, Hila and Holtzman, Ari and Tsvetkov, Yulia
    and Zettlemoyer, Luke},
  title = {Toward Human Readable Prompt Tuning: {Kubrick's The Shining} is a good movie,
    and a good prompt too?},
  year = {2022},
  eprint = {2212.10539},
  archivePrefix = {arXiv},
}
"""


@dataclass(frozen=True)
class FluentPrompt(Search):
    """Tokens that follow the gradient and a noise that fades.

    e <- Proj(e - rate * gradient + sqrt(2 * rate * beta) * z), z normal, Proj by Euclidean distance; beta goes
    geometrically from `noise` to `noise_end` over the passes. Without noise it is autoprompt's mode "projected", whose
    rate it has; the noise is as large as with a beta of 1 to 1e-4, as published, at a rate of .3. fluency: share of the
    loss that is the prompt's own cross-entropy, for decoders. init_from, ban, batch: as in pez.
    """

    length: int = 10
    rate: float = 100.0
    noise: float = 3e-3
    noise_end: float = 3e-7
    fluency: float = 0.0
    init_from: From = "vocabulary"
    batch: int = 16
    ban: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_positive(self, "rate", "noise", "noise_end", "batch")

    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        return drive(bench, Within(self.length, self.ban, self.fluency), self.moves, passes, seed, say)

    def moves(self, goal: Objective, generator: torch.Generator, passes: int) -> Iterator[Tensor]:
        project = nearest(goal.table, "euclidean")
        prompt = begun(goal, self.init_from, generator)
        while True:
            beta = self.noise * (self.noise_end / self.noise) ** (goal.passes / passes)
            gradient = goal.slope(prompt, goal.batch(self.batch, generator)).gradient
            z = torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype).to(gradient.device)
            prompt = project(goal.table[prompt] - self.rate * gradient + (2 * self.rate * beta) ** 0.5 * z)
            yield prompt
