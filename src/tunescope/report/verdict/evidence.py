"""What a verdict rests on: the best arms, their floors and their differences; `reader.py` gathers them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tunescope.report.verdict import stats
from tunescope.report.verdict.curve import Trend

Result = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """One finished arm, higher scores better."""

    name: str
    group: str
    dev: float | None
    score: float
    interval: tuple[float, float] | None
    learnt: bool
    last_loss: float | None  # training loss since the last evaluation but one
    shift: float | None  # how much attention over the content changed
    shown: str
    seconds: float | None = None  # of a run
    rise: Trend | None = None  # of the dev score, carried on for as many steps again
    fall: Trend | None = None  # of the training loss
    near_best: tuple[int, int] | None = None  # seeds near the best, and all
    chosen: Result | None = None  # the run that dev chooses: seed, id, dev, test
    seeds: int | None = None  # that it has runs of; None: one run stands for every seed
    steps: bool = False  # whether it was trained on steps and writes them before its answers
    chosen_learnt: bool = False  # whether the chosen run of one whose seeds scatter is above its floor

    @property
    def unstable(self) -> bool:
        return self.near_best is not None and self.near_best[0] < self.near_best[1]

    @property
    def shows_it(self) -> bool:
        """Whether it is above its floor, or, of one whose seeds scatter, the run that dev chooses is."""
        return self.learnt or self.chosen_learnt


@dataclass(frozen=True)
class Pair:
    """An arm minus another on the same seeds and rows, higher better."""

    arm: str
    other: str
    difference: float
    low: float
    high: float
    level: float
    told: str
    seeds: int
    freedom: float | None = None
    parts: dict[str, float] = field(default_factory=dict)  # of the variance: seeds, rows, both
    widened: bool = False  # no row is an exception: `stats.Interval`

    @property
    def detectable(self) -> float:
        return stats.detectable(self.low, self.high, level=self.level, freedom=self.freedom)


@dataclass(frozen=True)
class Evidence:
    """Everything the rule asks for; an arm is the best of its kind by dev score, None if none finished."""

    margin: float
    scale: float
    seeds: int
    rows: int
    layers: int  # of the model; 1 where it is not told
    causal: bool  # whether it is a decoder
    floor: str
    losses: str  # the arms that did not finish, in words
    latency: str  # whether the frozen model can do it unaided, in words
    edges: tuple[str, ...]  # trained arms whose best learning rate was at an end of those tried
    context: Arm | None
    delta: Arm | None
    untrained: Arm | None  # zero-shot or text
    trained: Arm | None  # context or delta
    head: Arm | None
    full: Arm | None
    yardsticks: tuple[Arm, ...]
    able: Arm | None  # the best that is above its floor of those that are neither context nor delta of the budget
    passed_over: Arm | None  # the best that is above its floor of the contexts and deltas that dev did not choose
    pair: Pair | None  # context minus delta
    untrained_pair: Pair | None  # untrained minus trained
    head_pair: Pair | None  # head minus trained
    full_pairs: tuple[Pair, ...]  # full tuning minus context, and minus delta
    chosen_context: Pair | None = None  # of an unstable context the run that dev chooses, minus delta
    chance: float | None = None  # or the share of the commonest label, where that is more
    suffice: int | None = None  # seeds of an unstable context whose own run is not worse than the delta
    chosen_delta: Pair | None = None  # the context's chosen run minus that of an unstable delta
    chosen_over_full: tuple[Pair, ...] = ()  # the chosen run of an unstable context, delta, minus full
    chosen_over_able: tuple[Pair, ...] = ()  # and minus that which can do it
    able_pairs: tuple[Pair, ...] = ()  # that which can do it minus context, and minus delta
    chosen_over_untrained: Pair | None = None  # of an unstable trained arm the chosen run, minus untrained
    chosen_over_head: Pair | None = None  # and minus head
    untold: tuple[Pair, ...] = ()  # context minus each delta about as good on dev, where it may be worse
    chosen_untold: tuple[Pair, ...] = ()  # the same of the chosen run of an unstable context
    ahead: tuple[Pair, ...] = ()  # context minus each further delta that is ahead of it, beyond the interval

    def gain(self, arm: Arm) -> float:
        """What as many steps again would, at the pace of its last half, add to its dev score: no more than there is."""
        if arm.rise is None or not arm.rise.certain:
            return 0.0
        best = arm.score if arm.dev is None else arm.dev
        return max(min(arm.rise.gain, self.scale - best), 0.0) if self.scale > 0 else arm.rise.gain

    def number(self, value: float) -> str:
        return number(value, self.scale)

    @property
    def sample(self) -> str:
        return f"{self.seeds} seed{'s' * (self.seeds != 1)} and {self.rows:,} test rows"

    @property
    def shifts(self) -> dict[str, float]:
        arms = (self.context, self.delta)
        return {arm.name: arm.shift for arm in arms if arm and arm.shift is not None}

    def describe(self) -> Result:
        """JSON for the results file."""
        pair = self.pair or self.untrained_pair
        return asdict(self) | {"detectable": pair.detectable if pair else None}


def number(value: float, scale: float = 1.0) -> str:
    """Three decimals on a scale of 1, two on a scale of 100."""
    return f"{value:.3f}" if scale <= 1 else f"{value:.2f}"
