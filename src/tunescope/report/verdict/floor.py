"""What an arm has to be clear of to have learnt: chance, or the commonest label's share, and the model untrained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tunescope.report.verdict.evidence import Result
from tunescope.report.verdict.pairs import GROUPS, Pairs


class Floor:
    """Chance and zero-shot, of these what is known.

    chance: None where the task has none; name: what it is called.
    zero: the arm of the model untrained.
    """

    def __init__(self, chance: float | None, zero: Result | None, arms: Iterable[Result], pairs: Pairs) -> None:
        """arms: by which the commonest label is known, of accuracy alone."""
        self.chance, self.name, self.zero, self._pairs = chance, "chance", zero, pairs
        common = _commonest(arms)
        if common is not None and chance is not None and common > chance:
            self.chance, self.name = common, "the commonest label"

    def is_below(self, raw: Result) -> bool:
        """Whether the arm is clearly above chance and above zero-shot, of these what is known; above 0 where neither
        is. What trains nothing need only be above chance, where there is one."""
        if raw.get("group") in GROUPS["untrained"] and self.chance is not None:
            return self._is_below(self._pairs.of_score(raw))
        return self._is_below(self._pairs.of_score(raw)) and self.is_outdone_by(raw)

    def is_outdone_by(self, raw: Result) -> bool:
        """Whether the arm is ahead of the model untrained; where that was not run, any is."""
        if self.zero is None:
            return True
        gain = None if raw is self.zero else self._pairs.of(raw, self.zero)
        return gain is not None and gain.low > 0

    def is_below_run(self, raw: Result, seed: int) -> bool:
        """The same of one run that dev chose: the interval is over test rows, of which dev knew nothing."""
        run = {**raw, "interval": None, "runs": [run for run in raw["runs"] if run["seed"] == seed]}
        gain = self._pairs.chosen(raw, seed, self.zero, None) if self.zero else None
        return self._is_below(self._pairs.of_score(run)) and (self.zero is None or (gain is not None and gain.low > 0))

    def _is_below(self, interval: tuple[float, float] | None) -> bool:
        if not interval:
            return False
        least = 0.0 if self.zero is None and self.chance is None else self.chance
        return least is None or interval[0] > least


def _commonest(arms: Iterable[Result]) -> float | None:
    """The share of test rows that have the commonest label: what an answer that is always the same gets right."""
    runs = (run for arm in arms for run in arm.get("runs") or () if run.get("stats"))
    labels = Counter(row[1] for row in next(runs, {"stats": ()})["stats"] if len(row) > 1)
    return max(labels.values()) / labels.total() if labels else None
