"""What the page and the terminal table show, taken from results.json with everything missing made explicit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tunescope.data import scores
from tunescope.errors import UserError
from tunescope.report import other_text, text
from tunescope.report.charts import Frame, frame
from tunescope.report.svg import GROUPS
from tunescope.report.verdict import edges, reader, stats, words
from tunescope.report.verdict.edges import at_an_edge
from tunescope.report.verdict.verdict import decide

VERSION = 2  # results.json of 1 are the same, but for a digest that they lack
BEST = "best on dev"
Json = dict[str, Any]


@dataclass(frozen=True)
class View:
    """results.json made harmless and complete; `arms` best first, those that did not finish last."""

    raw: Json
    answer: str
    sentences: list[str]
    arms: list[Json]
    best: str | None
    best_key: str | None
    frame: Frame
    limits: list[str]

    @property
    def beaten(self) -> str:
        """That no arm, or not the one that dev chose, is better on test than the model untrained; else empty."""
        untrained = [arm["score"] for arm in self.done if arm["group"] == "none"]
        others = [arm["score"] for arm in self.done if arm["group"] != "none"]
        best = [arm["score"] for arm in self.done if arm["key"] == self.best_key and arm["group"] != "none"]
        if not untrained or not best or best[0] > max(untrained):
            return ""
        if max(others, default=best[0]) <= max(untrained):
            return "Nothing beats the untrained model."
        return "The arm that is best on dev does not beat the untrained model on test."

    @property
    def done(self) -> list[Json]:
        return [arm for arm in self.arms if arm["done"]]

    @property
    def also(self) -> list[str]:
        """The names of the metrics that are told beside the first."""
        return [text.metric(name) for name in self.raw["task"].get("also") or []]

    @property
    def is_balanced(self) -> bool:
        """Whether balanced accuracy stands beside the score: the labels alike, however many rows each has."""
        return any(arm["balanced"] is not None for arm in self.done)

    @property
    def uncorrected(self) -> str:
        """What differences to the best arm do not say, where there are several."""
        several = sum(bool(arm["behind"][1]) for arm in self.done) > 1
        return "The intervals of the differences are not corrected for how many of them there are." if several else ""

    @property
    def forgets(self) -> bool:
        """Whether a column tells what arms cost on other text."""
        return other_text.is_shown(self.done)

    @property
    def forgetting(self) -> str:
        """What that column is, or why there is none; "" where it was not asked for."""
        return other_text.sentence(self.raw.get("forgetting"), self.done)


def view(results: Json) -> View:
    """Raises:
    UserError: the results are of another version or have no arms.
    """
    if results.get("version") not in range(1, VERSION + 1):
        raise UserError(
            f"The results are of version {results.get('version')!r}, and this tunescope reads up to {VERSION}: "
            "use the tunescope that wrote them, or run `tunescope compare` again."
        )
    if not results.get("arms"):
        raise UserError("The results hold no arms. Run `tunescope compare` with at least one arm.")
    verdict = text.clean(words.standing(results) if results.get("verdict") else decide(results))
    raw = text.clean({key: value for key, value in results.items() if key not in ("arms", "examples")})
    raw["examples"] = text.examples(results.get("examples"))
    raw["command"] = text.command(str(results.get("command") or ""))
    for section in ("task", "protocol", "data", "model", "machine", "versions"):
        raw[section] = raw.get(section) or {}
    raw["comparisons"] = [_marked(one, results["arms"]) for one in raw.get("comparisons") or []]
    metric = str(raw["task"].get("metric") or "score")
    scale = scores.scale(metric)
    arms = [_arm(one, i, metric) for i, one in enumerate(results["arms"])]
    arms.sort(key=lambda arm: (not arm["done"], -(arm["score"] or 0.0), arm["index"]))
    best, also = _best(raw, arms), [str(name) for name in raw["task"].get("also") or []]
    for arm in arms:
        if other_text.is_shown(arms) and arm["forgets"]["reason"]:
            arm["remarks"].append(f"forgets: {arm['forgets']['reason']}.")
        arm["shown"] = text.score(arm["score"], scale)
        arm["span"] = text.span(arm["interval"], scale)
        arm["balanced_shown"] = text.score(arm["balanced"]) if arm["balanced"] is not None else ""
        arm["behind"] = _behind(arm["key"], best, raw.get("comparisons") or [], scale)
        arm["also"] = [_also(arm, name, best, raw.get("comparisons") or []) for name in also]
    known = [arm for arm in arms if arm["runs"] or arm["trials"]]
    size = _number(raw["protocol"].get("budget"))
    shown = frame(known, text.metric(metric), scale, _number(raw["task"].get("chance")), int(size) if size else None)
    limits = _limits(raw, arms, best, scale, reader.scored_rows(results))
    return View(
        raw, str(verdict["answer"]), verdict["sentences"], arms, best and text.middle(best, 80), best, shown, limits
    )


def _arm(one: Json, index: int, metric: str) -> Json:
    """One arm without per-row statistics, with numbers that are numbers or None."""
    one = text.clean({key: value for key, value in one.items() if key != "runs"}) | {"runs": one.get("runs") or []}
    runs = [_run(run, metric) for run in one["runs"]]
    runs = [run for run in runs if run["score"] is not None or run["curve"]]
    scored = [run for run in runs if run["score"] is not None]
    value = _number(one.get("score"))
    if value is None:
        value = _mean(run["score"] for run in scored)
    parameters = one.get("parameters") or {}
    status = str(one.get("status") or "failed")
    return {
        "index": index,
        "key": str(one.get("name") or f"arm {index + 1}"),
        "name": text.middle(str(one.get("name") or f"arm {index + 1}"), 80),
        "spec": str(one.get("spec") or ""),
        "group": one.get("group") if one.get("group") in GROUPS else "none",
        "note": str(one.get("budget_note") or ""),
        "status": status,
        "reason": str(one.get("reason") or ""),
        "remarks": [str(remark) for remark in one.get("remarks") or []],
        "done": status == "done" and value is not None,
        "score": value,
        "interval": one.get("interval") or None,
        "balanced": _mean(run["balanced"] for run in scored),
        "others": one.get("also") or {},
        "forgets": other_text.of_arm(one.get("forgetting") if status == "done" else None),
        "trained": int(parameters.get("trained") or 0),
        "stored": int(parameters.get("stored") or 0),
        "live": int(parameters.get("live") or 0),
        "learning_rate": _number(one.get("learning_rate")),
        "learning_rates": edges.rates(one),
        "trials": [
            {**trial, "dev": _number(trial.get("dev")), "learning_rates": edges.rates(trial)}
            for trial in one.get("trials") or []
        ],
        "runs": scored if status == "done" else runs,
        "seconds": _mean(run["seconds"] for run in runs),
        "memory": max((run["memory"] for run in runs if run["memory"] is not None), default=None),
    }


def _run(run: Json, metric: str) -> Json:
    return {
        "seed": int(run.get("seed") or 0),
        "score": _number((run.get("test") or {}).get(metric)),
        "balanced": _number((run.get("test") or {}).get("balanced_accuracy")),
        "seconds": _number(run.get("seconds")),
        "memory": _number(run.get("memory_mb")),
        "curve": [
            {"step": int(p["step"]), "loss": _number(p.get("loss")), "dev": _number(p.get("dev"))}
            for p in run.get("curve") or []
        ],
    }


def _best(raw: Json, arms: list[Json]) -> str | None:
    named = str((raw.get("best") or {}).get("arm") or "")
    finished = [arm["key"] for arm in arms if arm["done"]]
    return named if named in finished else (finished[0] if finished else None)


def _marked(one: Json, arms: list[Json]) -> Json:
    """A comparison, with a mark where it is over fewer seeds than the score of one of its arms, as after looks."""
    names = (one.get("a"), one.get("b"))  # as they are shown
    runs = [len(arm.get("runs") or ()) for arm in arms if text.clean(str(arm.get("name"))) in names]
    seeds = _number(one.get("seeds"))
    return {**one, "of_some_seeds": seeds is not None and seeds < max(runs, default=0)}


def _also(arm: Json, name: str, best: str | None, comparisons: list[Json]) -> Json:
    """A metric told beside the first: its score, interval and difference to the best arm, for showing."""
    own, scale = arm["others"].get(name) or {}, scores.scale(name)
    pairs = [{**one, **((one.get("also") or {}).get(name) or {"interval": None})} for one in comparisons]
    difference, span = _behind(arm["key"], best, pairs, scale)
    return {
        "value": _number(own.get("score")),
        "shown": text.score(_number(own.get("score")), scale),
        "span": text.span(own.get("interval"), scale),
        "behind": f"{difference} ({span})" if span else difference,
    }


def _behind(name: str, best: str | None, comparisons: list[Json], scale: float) -> tuple[str, str]:
    """(difference to the best, its interval), or empty where it was not compared."""
    for one in comparisons:
        a, b = (str(one.get(side)) for side in "ab")
        if {a, b} == {name, best} and one.get("interval"):
            sign = 1 if a == name else -1
            edges = sorted(sign * edge for edge in one["interval"])
            span = text.span(edges, scale, sign=True)
            span += f", {one['seeds']} seeds" if one.get("of_some_seeds") else ""
            return text.score(sign * one["difference"], scale, sign=True), span
    return (BEST, "") if name == best else ("", "")


def _limits(raw: Json, arms: list[Json], best: str | None, scale: float, rows: int) -> list[str]:
    """What the page does not say, in sentences. rows: how many test items were scored."""
    seeds = max((len(arm["runs"]) for arm in arms if arm["done"]), default=1)
    given = [one for one in raw["protocol"].get("budgets") or [raw["protocol"].get("budget")] if one]
    budgets = "these budgets" if len(given) > 1 else "one budget" if given else "these sizes"
    over = "seeds and test rows" if seeds > 1 else "test rows only: one seed was run, and another could score otherwise"
    said = [
        f"One model, one set of data, {budgets}, these learning rates. Another may order the arms differently.",
        f"Intervals are 95 % intervals over {over}. They are not corrected for the number of comparisons on this page.",
    ]
    pairs = [one for one in raw.get("comparisons") or [] if best in (one["a"], one["b"]) and one["interval"]]
    found = [stats.detectable(*one["interval"], freedom=one.get("freedom")) for one in pairs]
    if found:
        low, high = text.score(min(found), scale), text.score(max(found), scale)
        said.append(
            f"With {_seeds(pairs, seeds)} and {rows:,} test rows, a true difference to "
            f"{text.middle(best or '', 80)} had to be "
            f"about {low if low == high else f'{low} to {high}, depending on the arm,'} to be found 4 times in 5."
        )
    trials = raw["protocol"].get("trials_per_arm")
    if trials:
        typed = ", ".join(f"{rate:g}" for rate in raw["protocol"].get("rates") or ())
        had = f"the learning rates {typed}" if typed else f"{trials} learning-rate trials from its method's own grid"
        past = raw["protocol"].get("beyond")
        composed = raw["protocol"].get("apart") and any(len(edges.rates(arm)) > 1 for arm in arms)
        apart = " or, of composed methods, of one alone" if composed else ""
        had += f", and up to {past} past an end of these that won{apart}" if past else ""
        said.append(
            f"Every trained arm had {had}. A wider search, other initialisations or more steps could change its score."
        )
    said += at_an_edge(arms, raw["protocol"])
    lost = [arm["name"] for arm in arms if not arm["done"]]
    if lost:
        said.append(f"Not in the charts, because they did not finish: {', '.join(lost)}.")
    said.append("Seconds and memory are of this machine as it was, also with whatever else ran on it.")
    said.append(
        "Stored is what is saved for an arm; trained is what was optimised, which a reparametrisation makes larger; "
        "live is what takes part in inference."
    )
    return said


def _seeds(pairs: list[Json], most: int) -> str:
    """How many seeds these comparisons are over: 3 seeds, 3 to 6 seeds. most: of those that do not tell."""
    counts = [int(_number(one.get("seeds")) or most) for one in pairs]
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else f"{high} seed{'s' * (high != 1)}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
