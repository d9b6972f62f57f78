"""Arms whose best learning rate is the largest or the smallest of those tried, in sentences.

A grid that suits large models can end too early for a small one, and an arm that is cut short so is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

# A rate that diverged, or lost a race, was tried; of these nothing is known, and they might have been the best.
UNKNOWN = ("failed", "out of memory", "refused")


def edge(tried: Sequence[float], chosen: float | None) -> Literal["largest", "smallest"] | None:
    """Which end of the rates tried the chosen one is; None where it is neither, or was alone."""
    if len(tried) < 2 or chosen is None:
        return None
    return "largest" if chosen == max(tried) else "smallest" if chosen == min(tried) else None


def arm_edges(arm: Mapping[str, Any]) -> set[str]:
    """The ends at which the arm's rate is; composed methods can be at one each."""
    return every_edge([rates(trial) for trial in _known(arm)], rates(arm))


def every_edge(tried: Sequence[Sequence[float]], chosen: Sequence[float]) -> set[str]:
    """`edge`, of rates that have one number a method."""
    whole = [own for own in tried if len(own) == len(chosen)]
    ends = (edge([own[place] for own in whole], rate) for place, rate in enumerate(chosen))
    return {end for end in ends if end}


def at_an_edge(arms: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any]) -> list[str]:
    """A sentence for each end that some of these arms chose: one beyond it might have done better."""
    if protocol.get("pilot_of"):
        return []
    edges = {arm["name"]: arm_edges(arm) for arm in arms}
    more = (protocol.get("beyond") or 0) + 2
    said = []
    for end, other in (("largest", "larger"), ("smallest", "smaller")):
        names = [name for name, found in edges.items() if end in found]
        if names:
            said.append(
                f"The {end} learning rate tried was chosen for {', '.join(names)}: a {other} one might do better. "
                f"With compare --beyond {more} such arms try up to {more} past the end."
            )
    return said


def _known(arm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """An arm's trials, but for those of which nothing is known."""
    return [trial for trial in arm.get("trials") or () if trial.get("status") not in UNKNOWN]


def rates(one: Mapping[str, Any]) -> list[float]:
    """The learning rates of an arm, or of a trial: one a method that is trained; of older results the first's alone."""
    every = one.get("learning_rates")
    known = every if isinstance(every, list | tuple) and every else [one.get("learning_rate")]
    return [float(rate) for rate in known if isinstance(rate, int | float) and math.isfinite(rate)]


def untold(arm: Mapping[str, Any]) -> list[str]:
    """Each learning rate of which nothing is known, with the reason: "0.01 (out of memory: ...)"."""
    lost = [trial for trial in arm.get("trials") or () if trial.get("status") in UNKNOWN]
    return [f"{rates_of(one)} ({one['status']}: {one.get('reason') or 'no reason is known'})" for one in lost]


def rates_of(trial: Mapping[str, Any]) -> str:
    return "+".join(f"{rate:g}" for rate in rates(trial)) or "none"


def choice_in_doubt(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on finished arms that were not tried at every learning rate; none where all were."""
    names = {
        arm["name"]: [text.partition(" (")[0] for text in untold(arm)] for arm in arms if arm.get("score") is not None
    }
    told = [f"{name} at {', '.join(rates)}" for name, rates in names.items() if rates]
    if not told:
        return []
    return [
        f"Not every learning rate could be tried: {'; '.join(told)}. One of these might have been chosen; "
        "`tunescope resume RUN` tries them again."
    ]
