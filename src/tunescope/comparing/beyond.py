"""Learning rates past the ends of a grid, one at a time, while the last of an end wins.

A grid that suits large models can end too early for a small one, and an arm that is cut short so is not compared. The
rule is the same for every arm: while the largest rate tried is the best, three times that is tried too; while the
smallest is, a third of it; at most as many as the plan says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.comparing.racing import Race

Rates = tuple[float, ...]  # of each method of an arm; those of a composition rise together
FACTOR = 3.0
DIGITS = 3


def check_beyond(race: Race) -> None:
    """Raises UserError where there is no end to go beyond."""
    if race.rates < 2:
        raise UserError("--beyond has no effect on one learning rate; give more with --trials or --lr.")


def following(tried: Sequence[Rates], best: Rates) -> Rates | None:
    """What to try after these of which `best` won; None where it lies between others."""
    if len(tried) > 1 and best in (max(tried), min(tried)):
        return _times(best, FACTOR if best == max(tried) else 1 / FACTOR)
    return None


def possible(grid: Sequence[Rates], most: int) -> list[Rates]:
    """Every rate that `most` steps past either end can come to."""
    found = list[Rates]()
    for rates, factor in ((max(grid), FACTOR), (min(grid), 1 / FACTOR)) if len(grid) > 1 else ():
        for _ in range(most):
            rates = _times(rates, factor)
            found.append(rates)
    return found


def edge(tried: Sequence[float], chosen: float | None) -> Literal["largest", "smallest"] | None:
    """Which end of the rates tried the chosen one is; None where it is neither, or was alone."""
    if len(tried) < 2 or chosen is None:
        return None
    return "largest" if chosen == max(tried) else "smallest" if chosen == min(tried) else None


def at_an_edge(arms: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any]) -> list[str]:
    """A sentence for each end that some of these arms chose: one beyond it might have done better."""
    if protocol.get("pilot_of"):
        return []
    edges = {arm["name"]: edge(_tried(arm), arm.get("learning_rate")) for arm in arms}
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


def _tried(arm: Mapping[str, Any]) -> list[float]:
    rates = (trial.get("learning_rate") for trial in arm.get("trials") or ())
    return [rate for rate in rates if rate is not None]


def _times(rates: Rates, factor: float) -> Rates:
    """Rounded, so that a rate reads as it is typed."""
    return tuple(float(f"{rate * factor:.{DIGITS}g}") for rate in rates)
