"""What an artifact costs on other text, as the table, the page and the card show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tunescope.report import text

Json = dict[str, Any]


def of_arm(found: Mapping[str, Any] | None) -> Json:
    """{"change": a number or None, "shown", "error": its standard error in words, "reason": why there is none}."""
    found = found or {}
    change, error = (_finite(found.get(name)) for name in ("change", "error"))
    if change is None:
        return {"change": None, "shown": "–" if found else "", "error": "", "reason": str(found.get("reason") or "")}
    shown = text.score(change, sign=True) if change else "0"  # of the model as it is
    return {"change": change, "shown": shown, "error": f"± {error:.3f}" if error else "", "reason": ""}


def is_shown(arms: Sequence[Json]) -> bool:
    """Whether there is a figure at all: otherwise the reason is told once, and no column."""
    return any(arm["forgets"]["change"] is not None for arm in arms)


def line(found: Mapping[str, Any] | None, arms: Sequence[Json]) -> str:
    """What the column is, for a terminal; "" where nothing was asked for."""
    if not found:
        return ""
    if not is_shown(arms):
        return f"forgets: not measured: {_reason(found, arms)}"
    return (
        f"forgets: nats a token that the model's own loss on {_windows(found)} rises with the artifact on, ± its error"
    )


def sentence(found: Mapping[str, Any] | None, arms: Sequence[Json]) -> str:
    """The same for the page, with what it does not say."""
    if not found:
        return ""
    if not is_shown(arms):
        return f"Forgetting was not measured: {_reason(found, arms)}."
    return (
        f"Forgets: how much the model's own loss ({found.get('loss')}) on {_windows(found)}, which have nothing to do "
        "with the task, rises with the artifact on, in nats a token, the mean over seeds ± its standard error over the "
        "windows alone; it is the price of leaving the artifact on for other text of this kind, and no loss of "
        "knowledge or of other skills: detached, the model is as it was."
    )


def _windows(found: Mapping[str, Any]) -> str:
    return f"{found.get('windows')} windows of {found.get('tokens')} tokens of {found.get('path')}"


def _reason(found: Mapping[str, Any], arms: Sequence[Json]) -> str:
    own = dict.fromkeys(arm["forgets"]["reason"] for arm in arms if arm["forgets"]["reason"])
    return str(found.get("reason") or next(iter(own), "no arm came so far"))


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
