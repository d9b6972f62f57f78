"""Whether what is to be begun will be over in time, by what was timed before and by how it has gone since."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunescope.comparison import costs as counted
from tunescope.comparison.costs import Costs, Sizes
from tunescope.comparison.job import Job
from tunescope.trial.plan import Plan

NONE = Sizes(0, 0, labelled=True)
Run = Callable[[Sequence[Job], int], dict[str, Any]]


@dataclass
class Deadline:
    """Of a comparison that is to be over at `end`, as `time.monotonic` has it; None: whenever it is.

    costs: arm -> its seconds. went: steps that are done of each run. took, expected: of all that ran, in seconds.
    agreed: makes the answer that of the first of several processes. known: whether a job was done before.
    """

    plan: Plan
    end: float | None = None
    workers: int = 1
    costs: Mapping[str, Costs] = field(default_factory=dict)
    sizes: Sizes = NONE
    agreed: Callable[[bool], bool] = lambda answer: answer
    known: Callable[[Job], bool] = lambda todo: False
    went: dict[str, int] = field(default_factory=dict)
    took: float = 0.0
    expected: float = 0.0

    @property
    def slower(self) -> float:
        """How many times slower than timed; what was quicker may have stopped early, and promises nothing."""
        return max(1.0, self.took / self.expected) if self.expected else 1.0

    def allows(self, *rounds: Iterable[Job]) -> bool:
        """Whether these rounds of jobs, one behind the other, would be done."""
        if self.end is None:
            return True
        return self.agreed(time.monotonic() + self.slower * self._seconds(rounds) <= self.end)

    def timed(self, run: Run) -> Run:
        """The same, but that it is timed."""
        if self.end is None:
            return run

        def watched(jobs: Sequence[Job], together: int) -> dict[str, Any]:
            expected, start = self._seconds([jobs]), time.monotonic()
            outcomes = run(jobs, together)
            self.took, self.expected = self.took + time.monotonic() - start, self.expected + expected
            for todo in jobs:
                self.went[todo.id] = todo.until or todo.steps
            return outcomes

        return watched

    def _seconds(self, rounds: Iterable[Iterable[Job]]) -> float:
        return sum(counted.side_by_side([self._of(todo) for todo in jobs], self.workers) for jobs in rounds)

    def _of(self, todo: Job) -> float:
        """A job's seconds, without the steps that are done."""
        if self.known(todo):
            return 0.0
        own, went = self.costs[todo.arm.arm.name], self.went.get(todo.id)
        if not own.trained:
            return counted.untrained(own, self.plan, self.sizes) if went is None else 0.0
        steps, seconds = todo.until or todo.steps, 0.0
        if went is None or went < steps:
            seconds = counted.run(own, self.plan, self.sizes, steps) - (
                counted.run(own, self.plan, self.sizes, went) if went else 0.0
            )
        return seconds + (counted.test(own, self.plan, self.sizes) if todo.test else 0.0)
