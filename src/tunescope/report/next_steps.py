"""What to run next: the two or three commands that would tell most, by the verdict's reason and the run's own command.

RUN stands for the run's folder, which results.json does not know; files and models are named as in the run's command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunescope.report.verdict.interim_looks import LEAST
from tunescope.report.verdict.verdict import decide
from tunescope.report.verdict.words import PAIR

Json = Mapping[str, Any]
Step = dict[str, str]
MOST = 3
SMALLER, LARGER = 4, 4  # times the budget
SIZE = re.compile(r"\b(?:rank|length|bottleneck)=([1-9]\d*)")
BOTH = re.compile(r"(\d+) seeds and about [\d,]+ test rows")
QUOTED = re.compile(r"`(tunescope [^`]*)`")


def steps(results: Json) -> list[Step]:
    """{"why": a sentence, "command"}: at most MOST, the one that would tell most first; none without a command."""
    verdict = results.get("verdict") or decide(dict(results))
    asked = _Asked({**results, "verdict": verdict})
    if not asked.words:
        return []
    earlier = (verdict.get("evidence") or {}).get("reason")  # where the first versions had it
    reason = str(verdict.get("reason") or earlier)
    found = [*BY_REASON.get(reason, _nothing)(asked), *_yardsticks(asked)]
    return list({one["command"]: one for one in found}.values())[:MOST]


class _Asked:
    """The run's own command as words, and the same with other options."""

    def __init__(self, results: Json) -> None:
        self.results, self.protocol = results, results.get("protocol") or {}
        try:
            self.words = shlex.split(str(results.get("command") or ""), comments=True)
        except ValueError:  # a command that somebody wrote by hand
            self.words = []
        if self.words[:2] != ["tunescope", "compare"]:
            self.words = []
        self.run = str((results.get("verdict") or {}).get("run") or "")
        self.groups = {arm.get("group") for arm in results["arms"] if arm.get("status") == "done"}
        self.model = str((results.get("model") or {}).get("name") or "MODEL")

    def with_options(self, *, add: Sequence[str] = (), drop: Sequence[str] = (), **options: int | str) -> str:
        """The command with these options, and arms beside its own. Where it names no arms, they are its usual ones."""
        words = [word for word in self.words if word not in drop]
        for name, value in options.items():
            words = _set(words, f"--{name.replace('_', '-')}", [str(value)])
        arms = [str(arm.get("spec") or arm.get("name")) for arm in self.results["arms"] if arm.get("status") == "done"]
        if add:
            words = _set(words, "--arms", [*(_values(words, "--arms") or arms), *add])
        return shlex.join(words)

    def lacks(self, arm: str) -> bool:
        """Whether the run neither had this arm nor was asked for it: of one that failed, it would fail again."""
        had = {str(one.get(key)) for one in self.results["arms"] for key in ("name", "spec")}
        return arm not in had and arm not in _values(self.words, "--arms")

    @property
    def least(self) -> float:
        """The budget below which no context, or no delta, of the run has a size: about, by the sizes that it had."""
        found: dict[str, float] = {}
        for arm in self.results["arms"]:
            size, stored = SIZE.search(str(arm.get("spec"))), (arm.get("parameters") or {}).get("stored")
            if arm.get("group") in PAIR and size and stored:
                kind = arm["group"]
                found[kind] = min(found.get(kind, stored), stored / int(size[1]))
        return max(found.values(), default=0)

    @property
    def budgets(self) -> list[int]:
        """Those of the run, the smallest first; none where one of the arms that decided has a size of its own."""
        evidence = (self.results.get("verdict") or {}).get("evidence") or {}
        if any(SIZE.search(str((evidence.get(side) or {}).get("name"))) for side in ("context", "delta")):
            return []
        return sorted(int(one) for one in self.protocol.get("budgets") or [self.protocol.get("budget")] if one)


def _values(words: Sequence[str], option: str) -> list[str]:
    """What stands behind the option, up to the next; or each in one word with it, --arms=-a=lora."""
    if option not in words:
        return [word.removeprefix(f"{option}=") for word in words if word.startswith(f"{option}=")]
    start = words.index(option) + 1
    behind = [at for at in range(start, len(words)) if words[at].startswith("--")]
    return list(words[start : min(behind, default=len(words))])


def _set(words: Sequence[str], option: str, values: Sequence[str]) -> list[str]:
    if any(value.startswith("-") for value in values):
        values = [f"{option}={value}" for value in values]
    else:
        values = [option, *values]
    if option not in words:
        return [*(word for word in words if not word.startswith(f"{option}=")), *values]
    start = words.index(option)
    return [*words[:start], *values, *words[start + 1 + len(_values(words, option)) :]]


def _step(why: str, command: str) -> Step:
    return {"why": why, "command": command}


def _arms_missing(asked: _Asked) -> list[Step]:
    return [
        _step(f"There is no {kind} to compare with that finished.", asked.with_options(add=[arm]))
        for kind, arm in (("delta", "lora"), ("context", "prefix"))
        if kind not in asked.groups and asked.lacks(arm)
    ]


def _few_seeds(asked: _Asked) -> list[Step]:
    """Three; and as many at most, where fewer were the most."""
    given = _values(asked.words, "--max-seeds")
    short = bool(given) and given[0].isdecimal() and int(given[0]) < LEAST
    again = asked.with_options(seeds=LEAST, max_seeds=LEAST) if short else asked.with_options(seeds=LEAST)
    return [_step("Three seeds tell how far another would come out.", again)]


def _longer(asked: _Asked) -> list[Step]:
    steps, beyond = asked.protocol.get("steps"), int(asked.protocol.get("beyond") or 0) + 2
    if not isinstance(steps, int):
        return []
    if asked.protocol.get("trials_per_arm") == 1:  # which has no end to go past
        return [_step("Twice the steps tell whether it was only stopped early.", asked.with_options(steps=2 * steps))]
    return [
        _step(
            "Twice the steps, and rates past the end of the grid, tell whether it was only stopped early.",
            asked.with_options(steps=2 * steps, beyond=beyond),
        )
    ]


def _learning(asked: _Asked) -> list[Step]:
    return _more_seeds(asked) or _longer(asked)


def _wide(asked: _Asked) -> list[Step]:
    """What the verdict has computed: more seeds, or more test rows."""
    if again := _with_seeds(asked):  # with --k-shot by --seeds, which a run has from its begin
        return [_step("So many seeds would decide, if the difference is what was seen.", again)]
    if "`--test`" not in asked.run:  # nothing that could be given would tell
        return []
    if both := BOTH.search(asked.run):
        option = "seeds" if asked.protocol.get("k_shot") is not None else "max_seeds"
        again = asked.with_options(test="MORE_ROWS.jsonl", **{option: both[1]})
        return [_step("There are too few seeds and too few test rows to tell: give more of both.", again)]
    return [_step("There are too few test rows to tell: give more.", asked.with_options(test="MORE_ROWS.jsonl"))]


def _more_seeds(asked: _Asked) -> list[Step]:
    """Twice as many, where the verdict asks for them."""
    again = _with_seeds(asked)
    return [_step("More seeds tell an arm from its luck.", again)] if again else []


def _with_seeds(asked: _Asked) -> str:
    """The command with the seeds that the verdict asks for; "" where it asks for none."""
    told = QUOTED.search(asked.run)
    if not told or "seeds" not in told[1]:
        return ""
    if "--max-seeds" in told[1]:
        return told[1]
    seeds = told[1].split()[-1]
    most = {"max_seeds": seeds} if "--max-seeds" in asked.words else {}  # or the new run would have fewer at most
    return asked.with_options(seeds=seeds, **most)


def _elsewhere(asked: _Asked) -> list[Step]:
    """A larger size, of what did not learn what another shows can be learnt; else what the verdict asks for."""
    if not asked.run:
        return _larger(asked)
    return _more_seeds(asked) or _longer(asked)


def _smaller(asked: _Asked) -> list[Step]:
    """It is enough: whether less is, and what it did inside."""
    less = [
        _step(f"Whether a quarter of the budget, {size:,}, does it too.", asked.with_options(budget=size))
        for size in [one // SMALLER for one in asked.budgets[:1]]
        if size >= asked.least
    ]
    return [*less, *_inside(asked)]


def _inside(asked: _Asked) -> list[Step]:
    """What the context that was held against the delta does; the best arm of all may be the delta."""
    name, path = _artifact(asked, "context")
    probe = f"tunescope probe prefix_bias --model {shlex.quote(asked.model)} --artifact {path} --text 'a text'"
    return [_step(f"What {name} does inside attention.", probe)] if path else []


def _artifact(asked: _Asked, side: str) -> tuple[str, str]:
    """The name of the context or the delta that decided, and where its best run lies; "" where nothing was kept."""
    arm = ((asked.results.get("verdict") or {}).get("evidence") or {}).get(side) or {}
    best, chosen = asked.results.get("best") or {}, (arm.get("chosen") or {}).get("id")
    sizes = {one["name"]: (one.get("parameters") or {}).get("stored") for one in asked.results["arms"]}
    if not arm or sizes.get(arm["name"]) == 0:  # words, which are found
        return "", ""
    if best.get("arm") == arm["name"]:
        return arm["name"], "RUN/best" if best.get("path") else ""
    return arm["name"], f"RUN/arms/{chosen}/artifact" if chosen else ""


def _larger(asked: _Asked) -> list[Step]:
    return [
        _step(
            f"Whether it is only too small: {LARGER} times the budget, {LARGER * size:,}.",
            asked.with_options(budget=LARGER * size),
        )
        for size in asked.budgets[-1:]
    ]


def _weights(asked: _Asked) -> list[Step]:
    name, path = _artifact(asked, "delta")
    probe = f"tunescope probe pattern --model {shlex.quote(asked.model)} --artifact {path} --text 'a text'"
    return [
        *_larger(asked),
        *([_step(f"How far {name} turned attention to other words of the text.", probe)] * bool(path)),
    ]


def _harder(asked: _Asked) -> list[Step]:
    return [_step("Rows that the frozen features do not solve.", asked.with_options(test="HARDER_ROWS.jsonl"))]


def _whole(asked: _Asked) -> list[Step]:
    return [_step("The whole comparison, of which this was the pilot.", asked.with_options(drop=["--pilot"]))]


def _yardsticks(asked: _Asked) -> list[Step]:
    """What no answer should be without: the model untrained, and full tuning."""
    lacking = [(arm, told) for group, arm, told in YARDSTICKS if not asked.groups & group]
    kind = (asked.results.get("model") or {}).get("kind")
    lacking = [(arm, told) for arm, told in lacking if (arm == "full" or kind != "encoder") and asked.lacks(arm)]
    if not lacking:
        return []
    names = " and ".join(told for _, told in lacking)
    return [_step(f"To compare with: {names}.", asked.with_options(add=[arm for arm, _ in lacking]))]


def _nothing(asked: _Asked) -> list[Step]:
    return []


YARDSTICKS = (
    ({"none"}, "zero-shot", "the model as it is"),
    ({"text"}, "demos:k=4", "solved examples in front"),
    ({"full"}, "full", "full tuning"),
)
BY_REASON: dict[str, Callable[[_Asked], list[Step]]] = {
    "missing arms": _arms_missing,
    "few seeds": _few_seeds,
    "undertrained": _longer,
    "nothing learnt": _learning,
    "wide interval": _wide,
    "unstable delta": _longer,
    "full tuning ahead": _larger,
    "passed over": _more_seeds,
    "learnt elsewhere": _elsewhere,
    "head alone": _harder,
    "prompt alone": _inside,
    "context not worse": _smaller,
    "alike": _smaller,
    "unstable": _smaller,
    "context worse": _weights,
    "forecast": _whole,
    "forecast undecided": _whole,
}
