"""What a verdict rests on, read from results.json: the best arms, their floors and their differences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from tunescope.data import scores
from tunescope.report.verdict import stats

FALL = 0.1  # of the training loss over a quarter of the steps: more is not yet flat
OVER = 1.05  # times the budget: an arm of a size typed by hand that is larger is no arm at the budget

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
    rise: float | None  # dev score, third quarter of the steps to the last; None where it was not measured
    fall: float | None  # the same of the training loss, as a share of it
    last_loss: float | None  # training loss since the last evaluation but one
    shift: float | None  # how much attention over the content changed
    shown: str

    def unfinished(self, margin: float) -> bool:
        """Still rising on dev; or, where dev shows nothing yet, with a training loss that still falls."""
        rising = self.rise is not None and self.rise > margin
        return rising or (not self.learnt and self.fall is not None and self.fall > FALL)


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

    @property
    def detectable(self) -> float:
        return stats.detectable(self.low, self.high, level=self.level)


@dataclass(frozen=True)
class Evidence:
    """Everything the rule asks for; an arm is the best of its kind by dev score, None if none finished."""

    margin: float
    scale: float
    seeds: int
    rows: int
    layers: int  # of the model; 1 where it is not told
    floor: str
    losses: str  # the arms that did not finish, in words
    latency: str  # whether the frozen model can do it unaided, in words
    context: Arm | None
    delta: Arm | None
    untrained: Arm | None  # zero-shot or text
    trained: Arm | None  # context or delta
    head: Arm | None
    yardsticks: tuple[Arm, ...]
    pair: Pair | None  # context minus delta
    untrained_pair: Pair | None  # untrained minus trained
    head_pair: Pair | None  # head minus trained
    full_pair: Pair | None  # full tuning minus trained

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


def finite(value: object) -> float | None:
    """The number, or None where results.json has null, NaN or something else."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def scored_rows(results: Result) -> int:
    """How many test items were scored: fewer than the file's rows where several references share one input."""
    lengths = [len(run.get("stats") or ()) for arm in results.get("arms", []) for run in arm.get("runs") or ()]
    return max(lengths, default=0) or int((results.get("data", {}).get("test") or {}).get("rows") or 0)


def gather(results: Result, margin: float) -> Evidence:
    """The evidence in a results.json dict, `margin` as a share of the metric's scale."""
    reader = _Reader(results)
    best = {name: reader.best(groups) for name, groups in _GROUPS.items()}
    full = reader.best({"full"})
    return Evidence(
        margin=margin * reader.scale,
        scale=reader.scale,
        seeds=len(results.get("protocol", {}).get("seeds") or [0]),
        rows=scored_rows(results),
        layers=int((results.get("model") or {}).get("layers") or 1),
        floor=reader.floor(),
        losses=reader.losses(),
        latency=reader.latency(),
        context=best["context"],
        delta=best["delta"],
        untrained=best["untrained"],
        trained=best["trained"],
        head=best["head"],
        yardsticks=tuple(arm for arm in (full, best["head"], reader.best({"both"})) if arm),
        pair=reader.pair(best["context"], best["delta"]),
        untrained_pair=reader.pair(best["untrained"], best["trained"]),
        head_pair=reader.pair(best["head"], best["trained"]),
        full_pair=reader.pair(full, best["trained"]),
    )


_GROUPS = {
    "context": {"context"},
    "delta": {"delta"},
    "untrained": {"none", "text"},
    "trained": {"context", "delta"},
    "head": {"head"},
}


class _Reader:
    """results.json, asked for arms and pairs of arms."""

    def __init__(self, results: Result) -> None:
        task = results.get("task") or {}
        self.metric = str(task.get("metric", "accuracy"))
        self.scale = scores.scale(self.metric)
        self.raw: list[Result] = list(results.get("arms") or [])
        self.chance, self.chance_name = finite(task.get("chance")), "chance"
        common = _commonest(self.raw) if self.metric == "accuracy" else None
        if common is not None and self.chance is not None and common > self.chance:
            self.chance, self.chance_name = common, "the commonest label"
        self.comparisons: list[Result] = list(results.get("comparisons") or [])
        finished = [arm for arm in self.raw if arm.get("status") == "done" and arm.get("runs")]
        self.done = {arm["name"]: arm for arm in finished if self._score(arm) is not None}
        protocol = results.get("protocol") or {}
        sizes = [size for size in map(finite, protocol.get("budgets") or [protocol.get("budget")]) if size]
        self.budget = max(sizes, default=None)
        self.zero = self._highest({"none"})

    def best(self, groups: Iterable[str]) -> Arm | None:
        raw = self._highest(set(groups))
        return self._arm(raw) if raw else None

    def pair(self, a: Arm | None, b: Arm | None) -> Pair | None:
        return self._pair(self.done[a.name], self.done[b.name]) if a and b else None

    def losses(self) -> str:
        unfinished = [arm for arm in self.raw if arm.get("status") != "done"]
        lost = [
            f"{arm.get('name')}{', a context' * (arm.get('group') == 'context')}: {arm.get('status')}"
            for arm in unfinished
        ]
        lost += [f"{arm['name']}: over the budget" for arm in self.done.values() if not self._within(arm)]
        return f" ({', '.join(lost)})" if lost else ""

    def floor(self) -> str:
        parts = [] if self.chance is None else [f"{self.chance_name} ({number(self.chance, self.scale)})"]
        parts += [self._arm(self.zero).shown] if self.zero else []
        return " and ".join(parts) or "a score of 0"

    def latency(self) -> str:
        frozen = [self._arm(arm) for arm in self.done.values() if arm.get("group") in _GROUPS["untrained"]]
        if not frozen:
            return "no arm shows what the model does untrained"
        if self.chance is None:
            return "untrained: " + ", ".join(arm.shown for arm in frozen)
        above = [arm.shown for arm in frozen if arm.interval and arm.interval[0] > self.chance]
        chance = f"{self.chance_name} ({number(self.chance, self.scale)})"
        if above:
            return f"part of the skill is latent: {', '.join(above)} above {chance} without training"
        return f"no sign that the skill is latent: {', '.join(a.shown for a in frozen)} not above {chance}"

    def _highest(self, groups: set[str]) -> Result | None:
        arms = [arm for arm in self.done.values() if arm.get("group") in groups and self._within(arm)]
        return max(arms, key=_dev) if arms else None

    def _within(self, raw: Result) -> bool:
        """Whether a context or delta is of the (largest) budget's size at most; yardsticks may be of any."""
        if self.budget is None or raw.get("group") not in _GROUPS["trained"]:
            return True
        stored = (raw.get("parameters") or {}).get("stored") or 0
        return bool(stored <= OVER * self.budget)

    def _arm(self, raw: Result) -> Arm:
        score, interval = self._score(raw), self._interval(raw)
        assert score is not None  # or it would not be among `done`
        shown = f"{raw['name']} ({number(score, self.scale)})"
        return Arm(
            name=raw["name"],
            group=raw["group"],
            dev=_mean(finite(run.get("dev")) for run in raw["runs"]),
            score=score,
            interval=interval,
            learnt=self._learnt(raw, interval),
            rise=_mean(after - before for before, after in _quarters(raw["runs"], "dev")),
            fall=_mean(1 - after / before for before, after in _quarters(raw["runs"], "loss") if before > 0),
            last_loss=_mean(finite(run["curve"][-1].get("loss")) for run in raw["runs"] if run.get("curve")),
            shift=_mean(finite((run.get("mechanism") or {}).get("content_pattern_shift")) for run in raw["runs"]),
            shown=shown,
        )

    def _score(self, raw: Result) -> float | None:
        score = finite(raw.get("score"))
        return (
            _mean(finite((run.get("test") or {}).get(self.metric)) for run in raw["runs"]) if score is None else score
        )

    def _interval(self, raw: Result) -> tuple[float, float] | None:
        if raw.get("interval"):
            return raw["interval"][0], raw["interval"][1]
        runs = stats.by_seed(raw["runs"])
        got = stats.interval(runs, stats.scorer(self.metric)) if runs else None
        return (got.low, got.high) if got else None

    def _learnt(self, raw: Result, interval: tuple[float, float] | None) -> bool:
        """Clearly above chance and above zero-shot, of these what is known; above 0 where neither is."""
        if not interval:
            return False
        above_chance = self.chance is None or interval[0] > self.chance
        if raw["group"] in _GROUPS["untrained"] and self.chance is not None:
            return above_chance
        if self.zero is None:
            return above_chance and interval[0] > 0
        gain = None if raw is self.zero else self._pair(raw, self.zero)
        return above_chance and gain is not None and gain.low > 0

    def _pair(self, a: Result, b: Result) -> Pair | None:
        for one in self.comparisons:
            if {one.get("a"), one.get("b")} == {a["name"], b["name"]} and one.get("interval"):
                sign = 1 if one["a"] == a["name"] else -1
                low, high = sorted(sign * edge for edge in one["interval"])
                return self._told(a, b, sign * one["difference"], low, high, one.get("level", 0.95))
        left, right = stats.by_seed(a["runs"]), stats.by_seed(b["runs"])
        left, right = _spread(a, left, right), _spread(b, right, left)
        if not set(left) & set(right):
            return None
        got = stats.paired(left, right, stats.scorer(self.metric))
        return self._told(a, b, got.value, got.low, got.high, got.level)

    def _told(self, a: Result, b: Result, value: float, low: float, high: float, level: float) -> Pair:
        low_, high_ = (f"{number(edge, self.scale)}" for edge in (low, high))
        told = f"the difference is {number(value, self.scale)} ({level:.0%} interval {low_} to {high_})"
        return Pair(a["name"], b["name"], value, low, high, level, told)


def _commonest(arms: Iterable[Result]) -> float | None:
    """The share of test rows that have the commonest label: what an answer that is always the same gets right."""
    runs = (run for arm in arms for run in arm.get("runs") or () if run.get("stats"))
    labels = Counter(row[1] for row in next(runs, {"stats": ()})["stats"] if len(row) > 1)
    return max(labels.values()) / labels.total() if labels else None


def _spread(raw: Result, runs: dict[int, stats.Array], other: Mapping[int, stats.Array]) -> dict[int, stats.Array]:
    """What trains nothing gives one answer for every seed."""
    if raw["group"] in _GROUPS["untrained"] and len(runs) == 1:
        return dict.fromkeys(other, next(iter(runs.values())))
    return runs


def _dev(raw: Result) -> float:
    dev = _mean(finite(run.get("dev")) for run in raw["runs"])
    return -math.inf if dev is None else dev


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _quarters(runs: Iterable[Result], key: str) -> list[tuple[float, float]]:
    """Of each run that has both: the mean of `key` in the third quarter of its steps, and in the last."""
    found = []
    for run in runs:
        points = [(point["step"], finite(point.get(key))) for point in run.get("curve") or []]
        last = max((step for step, _ in points), default=0)
        before = _mean(value for step, value in points if last / 2 < step <= last * 3 / 4)
        after = _mean(value for step, value in points if step > last * 3 / 4)
        if before is not None and after is not None:
            found.append((before, after))
    return found
