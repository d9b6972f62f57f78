"""`cot:samples=8,temperature=0.7`: the model writes its steps before its answer."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tunescope.errors import UserError

NAME = "cot"
THINK, THEN = "Let's think step by step.", "Therefore, the answer is"


@dataclass(frozen=True)
class Chain:
    """Chain of thought, alone in two passes (Kojima et al. 2022, arXiv:2205.11916): `think` is put behind the question
    and the model goes on; `then` is put behind that, and what follows it is read. Behind demonstrations, which then
    show their steps, in one pass (Wei et al. 2022, arXiv:2201.11903), without these words.

    samples, temperature: so many chains, sampled, of whose answers the commonest is taken; at temperature 0 the one
        greedy chain.
    tokens: of the steps, at most; None: the longest of the training rows' steps, or 128 where they have none.
    """

    samples: int = 1
    temperature: float = 0.0
    tokens: int | None = None
    think: str = THINK
    then: str = THEN

    def __post_init__(self) -> None:
        if self.samples < 1 or self.temperature < 0 or (self.tokens is not None and self.tokens < 1):
            raise UserError(f"{self}: samples and tokens are at least 1, and temperature at least 0.")
        if self.samples > 1 and self.temperature == 0:
            raise UserError(f"{self}: at temperature 0 all samples are the same; type cot:samples=8,temperature=0.7")

    def __str__(self) -> str:
        """As typed; what is at its default is left out."""
        given = [
            f"{one.name}={getattr(self, one.name)}" for one in fields(self) if getattr(self, one.name) != one.default
        ]
        return NAME + (f":{','.join(given)}" if given else "")
