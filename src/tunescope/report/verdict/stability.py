"""In how many of its seeds an arm came near its best, and the run that its development score chooses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

NEAR = 0.05  # of the metric's scale: a development score no further below the best seed's is near it
SURE = 2.0  # standard errors: and so is one that the development rows cannot tell from it

Run = Mapping[str, Any]


def noise(score: float, scale: float, rows: int) -> float:
    """The most that a score over so many rows can be off by chance, as a standard error: that of right and wrong."""
    share = min(max(score / scale, 0.0), 1.0) if scale > 0 else 0.0
    return scale * math.sqrt(share * (1 - share) / rows) if rows else 0.0


def room(scores: Sequence[float], scale: float, dev_rows: int) -> float:
    """How far below the best a development score may be and count as near it."""
    ends = (max(scores), sum(scores) / len(scores))
    return max(NEAR * scale, SURE * math.sqrt(2) * min(noise(one, scale, dev_rows) for one in ends))


def near_best(runs: Sequence[Run], scale: float, dev_rows: int) -> list[int] | None:
    """[seeds whose development score is near the best seed's, all seeds]; None where fewer than two are known."""
    found = [float(run["dev"]) for run in runs if run.get("dev") is not None]
    if len(found) < 2:
        return None
    least = max(found) - room(found, scale, dev_rows)
    return [sum(one >= least for one in found), len(found)]


def chosen(runs: Sequence[Run], metric: str) -> dict[str, Any] | None:
    """{"seed", "id", "dev", "test"} of the run with the best development score, ties to the first; None without."""
    known = [run for run in runs if run.get("dev") is not None]
    if not known:
        return None
    best = max(known, key=lambda run: float(run["dev"]))
    test = (best.get("test") or {}).get(metric)
    return {"seed": best["seed"], "id": best.get("id"), "dev": best["dev"], "test": test}


def remark(near: Sequence[int] | None, best: Mapping[str, Any] | None) -> list[str]:
    """A sentence for an arm whose seeds do not all come near its best; none for the others."""
    if not near or not best or near[0] == near[1]:
        return []
    test = "" if best.get("test") is None else f", and {best['test']:.4g} on test"
    return [
        f"Unstable: in {near[0]} of {near[1]} seeds it came near its best on dev. Seed {best['seed']}, chosen on dev, "
        f"has {best['dev']:.4g} there{test}."
    ]
