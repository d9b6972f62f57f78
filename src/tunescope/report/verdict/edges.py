"""Arms whose best learning rate is the largest or the smallest of those tried, in sentences.

A grid that suits large models can end too early for a small one, and an arm that is cut short so is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

# A rate that diverged, or lost a race, was tried; of these nothing is known, and they might have been the best.
UNKNOWN = ("failed", "out of memory", "refused")


def edge(tried: Sequence[float], chosen: float | None) -> Literal["largest", "smallest"] | None:
    """Which end of the rates tried the chosen one is; None where it is neither, or was alone."""
    if len(tried) < 2 or chosen is None:
        return None
    return "largest" if chosen == max(tried) else "smallest" if chosen == min(tried) else None


def at_an_edge(arms: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any]) -> list[str]:
    """A sentence for each end that some of these arms chose: one beyond it might have done better."""
    if protocol.get("pilot_of"):
        return []
    edges = {arm["name"]: edge(tried(arm), arm.get("learning_rate")) for arm in arms}
    more = (protocol.get("beyond") or 0) + 2
    said = []
    for end, other in (("largest", "larger"), ("smallest", "smaller")):
        names = [name for name, found in edges.items() if found == end]
        if names:
            said.append(
                f"The {end} learning rate tried was chosen for {', '.join(names)}: a {other} one might do better. "
                f"With compare --beyond {more} such arms try up to {more} past the end."
            )
    return said


def tried(arm: Mapping[str, Any]) -> list[float]:
    """The learning rates of an arm's trials, but for those of which nothing is known."""
    rates = (trial.get("learning_rate") for trial in arm.get("trials") or () if trial.get("status") not in UNKNOWN)
    return [rate for rate in rates if rate is not None]


def untold(arm: Mapping[str, Any]) -> list[str]:
    """Each learning rate of which nothing is known, with the reason: "0.01 (out of memory: ...)"."""
    lost = [trial for trial in arm.get("trials") or () if trial.get("status") in UNKNOWN]
    return [f"{rate_of(one)} ({one['status']}: {one.get('reason') or 'no reason is known'})" for one in lost]


def rate_of(trial: Mapping[str, Any]) -> str:
    rate = trial.get("learning_rate")
    return "none" if rate is None else f"{rate:g}"


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
