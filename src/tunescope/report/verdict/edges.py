"""Arms whose best learning rate is the largest or the smallest of those tried, in sentences.

A grid that suits large models can end too early for a small one, and an arm that is cut short so is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal


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
    """The learning rates of an arm's trials."""
    rates = (trial.get("learning_rate") for trial in arm.get("trials") or ())
    return [rate for rate in rates if rate is not None]
