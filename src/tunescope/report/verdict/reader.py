"""results.json, asked for the evidence of a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any

from tunescope.data import scores
from tunescope.report.verdict import curve, stability
from tunescope.report.verdict.edges import arm_edges
from tunescope.report.verdict.evidence import Arm, Evidence, Pair, Result, number
from tunescope.report.verdict.floor import Floor
from tunescope.report.verdict.interim_looks import LEAST
from tunescope.report.verdict.pairs import GROUPS, Pairs, finite

COT = "cot"  # the item of an arm that writes steps

OVER = 1.05  # times the budget: an arm of a size typed by hand that is larger is no arm at the budget


def gather(results: Result, margin: float) -> Evidence:
    """The evidence in a results.json dict, `margin` as a share of the metric's scale."""
    reader = _Reader(results, margin)
    best = {name: reader.best(groups) for name, groups in GROUPS.items()}
    context, delta, full = best["context"], best["delta"], reader.best({"full"})
    pair = reader.pair(context, delta)
    protocol, model = results.get("protocol") or {}, results.get("model") or {}
    scattered, able = [arm for arm in (context, delta) if arm and arm.unstable], reader.able()
    of_both = tuple(arm for arm in (context, delta) if arm)
    chosen = best["trained"] if best["trained"] in scattered else None
    return Evidence(
        margin=margin * reader.scale,
        scale=reader.scale,
        seeds=pair.seeds if pair else len(protocol.get("seeds") or [0]),
        rows=scored_rows(results),
        layers=int(model.get("layers") or 1),
        causal=model.get("kind", "decoder") == "decoder",
        floor=reader.floor_in_words(),
        chance=reader.floor.chance,
        losses=reader.losses(),
        latency=reader.latency(),
        edges=reader.edges(),
        **best,
        full=full,
        yardsticks=tuple(arm for arm in (full, best["head"], reader.best({"both"})) if arm),
        able=able,
        passed_over=reader.passed_over(of_both),
        pair=pair,
        untrained_pair=reader.pair(best["untrained"], best["trained"]),
        head_pair=reader.pair(best["head"], best["trained"]),
        full_pairs=reader.ahead_of(full, of_both),
        chosen_context=reader.chosen_pair(context, delta) if context in scattered else None,
        suffice=reader.sufficing(context, delta, margin * reader.scale) if context in scattered else None,
        chosen_delta=reader.chosen_pair(context, delta, both=True) if delta in scattered else None,
        chosen_over_full=reader.chosen_pairs(scattered, full),
        chosen_over_able=reader.chosen_pairs(scattered, able),
        able_pairs=reader.ahead_of(able, of_both),
        chosen_over_untrained=reader.chosen_pair(chosen, best["untrained"], both=True),
        chosen_over_head=reader.chosen_pair(chosen, best["head"], both=True),
        untold=tuple(reader.untold(context, delta, margin * reader.scale)) if context and delta else (),
        chosen_untold=tuple(reader.chosen_untold(context, delta, margin * reader.scale))
        if context in scattered and delta
        else (),
        ahead=tuple(reader.ahead(context, delta)) if context and delta else (),
    )


def scored_rows(results: Result) -> int:
    """How many test items were scored: fewer than the file's rows where several of them share one input."""
    lengths = [len(run.get("stats") or ()) for arm in results.get("arms", []) for run in arm.get("runs") or ()]
    test = (results.get("data") or {}).get("test") or {}
    scored, inputs = max(lengths, default=0), test.get("inputs") or ()
    return len(set(inputs)) if inputs and len(inputs) == scored else scored or int(test.get("rows") or 0)


def dev_rows(results: Mapping[str, Any]) -> int:
    """How many development rows with different inputs choose; as many as are scored where that is not told."""
    dev = (results.get("data") or {}).get("dev") or {}
    return int(dev.get("inputs") or dev.get("rows") or 0) or scored_rows(dict(results))


class _Reader:
    """results.json, asked for arms and pairs of arms."""

    def __init__(self, results: Result, margin: float) -> None:
        task = results.get("task") or {}
        self.metric = str(task.get("metric", "accuracy"))
        self.scale = scores.scale(self.metric)
        self.raw: list[Result] = list(results.get("arms") or [])
        finished = [arm for arm in self.raw if arm.get("status") == "done" and arm.get("runs")]
        self.done = {arm["name"]: arm for arm in finished if self._score(arm) is not None}
        protocol = results.get("protocol") or {}
        sizes = [size for size in map(finite, protocol.get("budgets") or [protocol.get("budget")]) if size]
        self.budget = max(sizes, default=None)
        self.pairs = Pairs(results, self.metric, self.done.values(), margin)
        self.deciding = set((protocol.get("looks") or {}).get("deciding") or ())
        self.dev_rows = dev_rows(results)
        self.early_rows = min(protocol.get("early_rows") or self.dev_rows, self.dev_rows)  # of a curve's points
        labelled = self.raw if self.metric == "accuracy" else ()
        self.floor = Floor(finite(task.get("chance")), self._highest({"none"}), labelled, self.pairs)

    def best(self, groups: Iterable[str]) -> Arm | None:
        raw = self._highest(set(groups))
        return self._arm(raw) if raw else None

    def able(self) -> Arm | None:
        """The arm with the best dev score of those above their floor that a context and a delta of the budget are not:
        full tuning, both at once, a head, words that are ahead of the model untrained, or what is over the budget."""
        return self._best_that_learnt(
            raw
            for raw in self.done.values()
            if not (raw.get("group") in GROUPS["trained"] and self._within(raw)) and raw.get("group") != "none"
        )

    def passed_over(self, chosen: Iterable[Arm]) -> Arm | None:
        """Of the contexts and deltas of the budget that dev did not choose the best above its floor."""
        names = {arm.name for arm in chosen}
        others = (raw for raw in self.done.values() if raw.get("group") in GROUPS["trained"])
        return self._best_that_learnt(raw for raw in others if self._within(raw) and raw["name"] not in names)

    def _best_that_learnt(self, arms: Iterable[Result]) -> Arm | None:
        learnt = [raw for raw in arms if self.floor.is_below(raw) and self.floor.is_outdone_by(raw)]
        return self._arm(max(learnt, key=_merit)) if learnt else None

    def ahead_of(self, arm: Arm | None, others: Iterable[Arm]) -> tuple[Pair, ...]:
        """The arm minus each of the others."""
        return tuple(pair for other in others if (pair := self.pair(arm, other)))

    def pair(self, a: Arm | None, b: Arm | None) -> Pair | None:
        return self.pairs.of(self.done[a.name], self.done[b.name]) if a and b else None

    def chosen_pair(self, arm: Arm | None, other: Arm | None, *, both: bool = False) -> Pair | None:
        """The arm's chosen run minus all runs of the other, or minus its chosen run."""
        if not arm or not other or not arm.chosen or (both and not other.chosen):
            return None
        seed = other.chosen["seed"] if both and other.chosen else None
        return self.pairs.chosen(self.done[arm.name], arm.chosen["seed"], self.done[other.name], seed)

    def chosen_pairs(self, arms: Iterable[Arm], other: Arm | None) -> tuple[Pair, ...]:
        """The chosen run of each arm minus that of the other."""
        found = (self.chosen_pair(arm, other, both=True) for arm in arms if other and arm.name != other.name)
        return tuple(pair for pair in found if pair)

    def sufficing(self, context: Arm | None, delta: Arm | None, margin: float) -> int | None:
        """In how many of its seeds the context's own run is not worse than the delta, as the chosen one is asked."""
        if not context or not delta:
            return None
        own, other = self.done[context.name], self.done[delta.name]
        pairs = (self.pairs.chosen(own, run["seed"], other, None) for run in own["runs"])
        return sum(pair is not None and pair.low > -margin for pair in pairs)

    def ahead(self, context: Arm, delta: Arm) -> Iterator[Pair]:
        """The context minus each delta but the one given, of those that are ahead of it beyond the interval."""
        return (pair for _, pair in self._others(context, delta) if pair.high < 0)

    def untold(self, context: Arm, delta: Arm, margin: float) -> Iterator[Pair]:
        """The context minus each further delta that dev hardly tells from the one given, where it may be worse."""
        for raw, pair in self._others(context, delta):
            if self._is_near(raw, delta) and pair.low <= -margin and pair.high >= 0:
                yield pair

    def chosen_untold(self, context: Arm, delta: Arm, margin: float) -> Iterator[Pair]:
        """The same of the context's chosen run, where the answer rests on that."""
        for raw, _ in self._others(context, delta):
            pair = self.chosen_pair(context, self._arm(raw)) if self._is_near(raw, delta) else None
            if pair and pair.low <= -margin:
                yield pair

    def _is_near(self, raw: Result, delta: Arm) -> bool:
        """Whether the development rows hardly tell an arm from the delta."""
        both = [one for one in (_merit(raw)[0], delta.dev) if one is not None and math.isfinite(one)]
        return len(both) > 1 and both[1] - both[0] <= stability.room(both, self.scale, self.dev_rows)

    def _others(self, context: Arm, delta: Arm) -> Iterator[tuple[Result, Pair]]:
        """Each delta of the budget's size but the one given, of seeds enough, and the context minus it."""
        own = self.done[context.name]
        for raw in self.done.values():
            if raw.get("group") in GROUPS["delta"] and self._within(raw) and raw["name"] != delta.name:
                pair = self.pairs.of(own, raw)
                if pair and pair.seeds >= LEAST:
                    yield raw, pair

    def edges(self) -> tuple[str, ...]:
        return tuple(
            arm["name"] for arm in self.done.values() if arm.get("group") in GROUPS["trained"] and arm_edges(arm)
        )

    def losses(self) -> str:
        unfinished = [arm for arm in self.raw if arm.get("status") != "done"]
        lost = [
            f"{arm.get('name')}{', a context' * (arm.get('group') == 'context')}: {arm.get('status')}"
            for arm in unfinished
        ]
        lost += [f"{arm['name']}: over the budget" for arm in self.done.values() if not self._within(arm)]
        return f" ({', '.join(lost)})" if lost else ""

    def floor_in_words(self) -> str:
        parts = [] if self.floor.chance is None else [self._chance]
        parts += [self._shown(self.floor.zero)] if self.floor.zero else []
        return " and ".join(parts) or "a score of 0"

    def latency(self) -> str:
        frozen = [self._arm(arm) for arm in self.done.values() if arm.get("group") in GROUPS["untrained"]]
        if not frozen:
            return "No arm shows what the model does without training."
        chance = self.floor.chance
        if chance is None:
            return f"Without training: {', '.join(arm.shown for arm in frozen)}."
        above = [arm.shown for arm in frozen if arm.interval and arm.interval[0] > chance]
        if above:
            told = f"{', '.join(above)} {'is' if len(above) == 1 else 'are'} above {self._chance}"
            return f"Without training the model does part of it: {told} (part of the skill is latent)."
        told = f"{', '.join(arm.shown for arm in frozen)} {'is' if len(frozen) == 1 else 'are'} not clear of"
        latent = f"{told} {self._chance} (no sign that the skill is latent)"
        return f"Nothing shows that the model does it without training: {latent}."

    @property
    def _chance(self) -> str:
        return f"{self.floor.name} ({number(self.floor.chance or 0.0, self.scale)})"

    def _highest(self, groups: set[str]) -> Result | None:
        arms = [arm for arm in self.done.values() if arm.get("group") in groups and self._within(arm)]
        if self.deciding and groups & GROUPS["trained"]:
            arms = [arm for arm in arms if arm["name"] in self.deciding]
        return max(arms, key=_merit) if arms else None

    def _within(self, raw: Result) -> bool:
        """Whether a context or delta is of the (largest) budget's size at most; yardsticks may be of any."""
        if self.budget is None or raw.get("group") not in GROUPS["trained"]:
            return True
        stored = (raw.get("parameters") or {}).get("stored") or 0
        return bool(stored <= OVER * self.budget)

    def _shown(self, raw: Result) -> str:
        return f"{raw['name']} ({number(self._score(raw) or 0.0, self.scale)})"

    def _arm(self, raw: Result) -> Arm:
        score, interval, runs = self._score(raw), self.pairs.of_score(raw), raw["runs"]
        assert score is not None  # or it would not be among `done`
        dev = _mean(finite(run.get("dev")) for run in runs)
        near = raw.get("near_best") or stability.near_best(runs, self.scale, self.dev_rows)
        near = near if near and raw["group"] not in GROUPS["untrained"] else None
        chosen = raw.get("chosen") or stability.chosen(runs, self.metric)
        return Arm(
            name=raw["name"],
            group=raw["group"],
            dev=dev,
            score=score,
            interval=interval,
            learnt=self.floor.is_below(raw),
            last_loss=_last_loss(raw),
            shift=_mean(finite((run.get("mechanism") or {}).get("content_pattern_shift")) for run in runs),
            shown=self._shown(raw),
            seconds=_mean(finite(run.get("seconds")) for run in runs),
            rise=curve.rise(runs, stability.noise(score if dev is None else dev, self.scale, self.early_rows)),
            fall=curve.fall(runs),
            near_best=(near[0], near[1]) if near else None,
            chosen=chosen,
            chosen_learnt=bool(near and near[0] < near[1] and chosen and self.floor.is_below_run(raw, chosen["seed"])),
            seeds=self.pairs.of_its_own(raw),
            steps=any(item.partition(":")[0] == COT for item in re.split(r"(?<!\\)\+", str(raw.get("spec") or ""))),
        )

    def _score(self, raw: Result) -> float | None:
        score = finite(raw.get("score"))
        return (
            _mean(finite((run.get("test") or {}).get(self.metric)) for run in raw["runs"]) if score is None else score
        )


def _merit(raw: Result) -> tuple[float, float, float]:
    """The development score; of equal ones the smaller artifact is better, then the lower training loss: the order in
    which a comparison finds its best arm (`comparison.standing.best_on_dev`)."""
    dev = _mean(finite(run.get("dev")) for run in raw["runs"])
    loss, stored = _last_loss(raw), (raw.get("parameters") or {}).get("stored") or 0
    return (-math.inf if dev is None else dev, -float(stored), -math.inf if loss is None else -loss)


def _last_loss(raw: Result) -> float | None:
    return _mean(finite(run["curve"][-1].get("loss")) for run in raw["runs"] if run.get("curve"))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
