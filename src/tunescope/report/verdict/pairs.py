"""Differences of arms, as results.json has them, or made anew from its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tunescope.data import scores
from tunescope.report.verdict import interim_looks, stats
from tunescope.report.verdict.evidence import Pair, Result, number
from tunescope.report.verdict.variance import Array, Pool

GROUPS = {
    "context": {"context"},
    "delta": {"delta"},
    "untrained": {"none", "text"},
    "trained": {"context", "delta"},
    "head": {"head"},
}


MOST_DIGITS = 9  # of an edge of an interval


def finite(value: object) -> float | None:
    """The number, or None where results.json has null, NaN or something else."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


class Pairs:
    """Differences of arms, as results.json has them or made anew from its rows, at the level of its looks."""

    def __init__(self, results: Result, metric: str, done: Iterable[Result], margin: float = 0.0) -> None:
        """margin: as a share of the metric's scale; an edge of an interval that is near it is told to more digits."""
        self.stored: list[Result] = list(results.get("comparisons") or [])
        protocol = results.get("protocol") or {}
        planned = (protocol.get("looks") or {}).get("planned") or (0,)
        self.level = interim_looks.level(planned)
        self.score, self.scale = stats.scorer(metric), scores.scale(metric)
        self.margin = margin * self.scale
        self.inputs = ((results.get("data") or {}).get("test") or {}).get("inputs")
        self.seeds = len(protocol.get("seeds") or [0])
        trained = [stats.by_seed(arm["runs"]) for arm in done if arm.get("group") not in GROUPS["untrained"]]
        self.pool = stats.pool_of(trained, self.score)

    def of_score(self, raw: Result) -> tuple[float, float] | None:
        """The interval of an arm's score."""
        if raw.get("interval"):
            return raw["interval"][0], raw["interval"][1]
        runs = stats.by_seed(raw["runs"])
        got = stats.interval(runs, self.score, pool=self.pool, inputs=self.inputs) if runs else None
        return (got.low, got.high) if got else None

    def of(self, a: Result, b: Result) -> Pair | None:
        stored = next((one for one in self.stored if self._is(one, a, b)), None)
        if stored and "parts" in stored and math.isclose(stored.get("level", stats.LEVEL), self.level):
            return self._as_stored(stored, a, b)
        left, right = stats.by_seed(a["runs"]), stats.by_seed(b["runs"])
        left, right = self._spread(a, left, right), self._spread(b, right, left)
        if set(left) & set(right):
            return self._made(a["name"], b["name"], left, right, self.pool)
        return self._as_stored(stored, a, b) if stored else None

    def chosen(self, a: Result, seed: int, b: Result, other: int | None) -> Pair | None:
        """One run of an arm against every run of another, or against one of them."""
        own, theirs = stats.by_seed(a["runs"]), stats.by_seed(b["runs"])
        theirs = theirs if other is None else {other: theirs[other]} if other in theirs else {}
        if seed not in own or not theirs:
            return None
        return self._made(f"{a['name']}, seed {seed}", b["name"], dict.fromkeys(theirs, own[seed]), theirs, None)

    def of_its_own(self, raw: Result) -> int | None:
        """How many seeds an arm has runs of; None where its one run stands for every seed."""
        return None if self._is_constant(raw) else len({run["seed"] for run in raw["runs"]})

    def _is_constant(self, raw: Result) -> bool:
        """Whether nothing is trained and nothing drawn. Earlier versions told it by one run of an arm where others have
        several; where every arm has one, by what its run holds."""
        if (varies := raw.get("varies")) is not None:
            return not varies
        trained = raw.get("group") not in GROUPS["untrained"] and raw.get("trials") != []
        if trained or len(raw["runs"]) != 1:
            return False
        drawn = any(raw["runs"][0].get(part) for part in ("demonstrations", "found"))
        return self.seeds > 1 or not (drawn or "temperature=" in str(raw.get("spec")))

    def _spread(self, raw: Result, runs: dict[int, Array], other: Mapping[int, Array]) -> dict[int, Array]:
        """What is the same whatever the seed has one run, which stands for every seed."""
        if len(runs) == 1 and self._is_constant(raw):
            return dict.fromkeys(other, next(iter(runs.values())))
        return runs

    def _is(self, one: Result, a: Result, b: Result) -> bool:
        return {one.get("a"), one.get("b")} == {a["name"], b["name"]} and bool(one.get("interval"))

    def _as_stored(self, one: Result, a: Result, b: Result) -> Pair:
        sign = 1 if one["a"] == a["name"] else -1
        low, high = sorted(sign * side for side in one["interval"])
        level, value = one.get("level", stats.LEVEL), sign * one["difference"]
        own = [count for arm in (a, b) if (count := self.of_its_own(arm)) is not None]
        seeds = min([one.get("seeds") or self.seeds, *own])
        told = self._in_words(value, low, high, level, seeds if seeds < max(own, default=0) else None)
        freedom, parts = one.get("freedom"), one.get("parts") or {}
        widened = bool(one.get("widened", "parts" in one and not any(parts.values())))
        return Pair(a["name"], b["name"], value, low, high, level, told, seeds, freedom, parts, widened)

    def _made(self, a: str, b: str, left: Mapping[int, Array], right: Mapping[int, Array], pool: Pool | None) -> Pair:
        got = stats.paired(left, right, self.score, level=self.level, pool=pool, inputs=self.inputs)
        common = got.seeds if got.seeds < max(len(left), len(right)) else None
        told = self._in_words(got.value, got.low, got.high, got.level, common)
        freedom = finite(got.freedom)
        return Pair(a, b, got.value, got.low, got.high, got.level, told, got.seeds, freedom, got.parts, got.widened)

    def _in_words(self, value: float, low: float, high: float, level: float, common: int | None) -> str:
        """common: the seeds that both arms have, where one of them has more, so that its score is another mean."""
        low_, high_ = self._edge(low), self._edge(high)
        over = "" if common is None else f"over the {common} seed{'s' * (common != 1)} that both have, "
        return f"{over}the difference is {number(value, self.scale)} ({100 * level:.4g}% interval {low_} to {high_})"

    def _edge(self, side: float) -> str:
        """As any number; with more digits where it would else look as if it lay on 0 or on the margin itself."""
        shown = number(side, self.scale)
        digits = len(shown.partition(".")[2])
        sharp = [0.0, *(sign * float(number(self.margin, self.scale)) for sign in (1, -1))]  # the margin as it is told
        for more in range(digits, MOST_DIGITS):
            shown = f"{side:.{more}f}"
            if not any(float(shown) == one and abs(side - one) > 1e-12 for one in sharp):
                break
        return shown
