"""An arm, as typed and as it is ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tunescope.methods.deltas.head import Head
from tunescope.tasks.prompts.chain import Chain
from tunescope.trial.demos.spec import Demos

if TYPE_CHECKING:
    from tunescope.trial.plan import Plan


ZERO_SHOT = "zero-shot"


@dataclass(frozen=True)
class Arm:
    """One line of the table. `text` is "zero-shot" or items joined by "+"; `budget` is in stored parameters."""

    name: str
    text: str
    budget: int | None = None


@dataclass(frozen=True)
class Ready:
    """An arm on a model: its specs in order (demonstrations are made later, a seed at a time).

    demos: what stands in front of the specs; where every query has its own it is in the query, and no artifact.
    chain: how steps are asked for, where they are.
    """

    arm: Arm
    specs: tuple[Any, ...]
    trains: tuple[bool, ...]  # for each spec, whether it has anything to train
    demos: Demos | None
    chain: Chain | None
    group: str
    note: str
    counts: Mapping[str, int]
    label: str  # the canonical text, which the run's id is made of
    search: Any = None  # what looks for the words, for an arm of which nothing else is known
    remarks: tuple[str, ...] = ()  # on how its contexts begin

    @property
    def trained(self) -> bool:
        return any(self.trains)

    @property
    def grids(self) -> list[tuple[float, ...]]:
        """The learning rates that each method names for itself."""
        return [spec.learning_rates for spec in self.specs]

    @property
    def parts(self) -> list[int]:
        """The places, among the specs, of the methods as typed that are trained: all but a head."""
        pairs = enumerate(zip(self.specs, self.trains, strict=False))
        return [place for place, (spec, trains) in pairs if trains and not isinstance(spec, Head)]

    @property
    def in_front(self) -> int:
        """How many artifacts stand before the specs: the demonstrations, which have no rate."""
        return int(self.demos is not None and not self.demos.each)

    @property
    def varies(self) -> bool:
        """Whether another seed gives another result."""
        draws = self.search is not None or (self.demos is not None and self.demos.draws)
        return self.trained or draws or (self.chain is not None and self.chain.temperature > 0)


def seeds_of(plan: Plan, arm: Ready) -> tuple[int, ...]:
    """The seeds that the arm is run at: the first alone where another gives the same."""
    return tuple(plan.seeds if has_every_seed(plan, arm) else plan.seeds[:1])


def has_every_seed(plan: Plan, arm: Ready) -> bool:
    """Whether each seed has a run of its own."""
    return arm.varies or (plan.k_shot is not None and arm.demos is not None)  # each has rows of its own to show
