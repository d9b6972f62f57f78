"""Which candidate a search comes to: the best on the development rows as the model is, or of a few after tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunescope.errors import UserError
from tunescope.searching.search import Found, Point, Say
from tunescope.searching.tuning import Tuning, tuned_score

if TYPE_CHECKING:
    from tunescope.comparing.bench import Bench


@dataclass(frozen=True)
class Candidate:
    """A template and label words, how they are shown, and their score on the development rows as the model is."""

    template: str
    words: Mapping[str, str]
    shown: str
    dev: float


def settled(candidates: Sequence[Candidate], passes: int, trace: Sequence[Point]) -> Found:
    """The best candidate, of equals the first, with the passes taken and what was tried."""
    best = max(candidates, key=lambda one: one.dev)
    return Found("", best.template, dict(best.words), best.dev, passes, tuple(trace))


def settled_by_tuning(
    bench: Bench, candidates: Sequence[Candidate], before: Found, tuning: Tuning, seed: int, say: Say
) -> Found:
    """The finalist that is best on the development rows after full tuning, of equals the one that was better before.

    `dev` is the score after tuning; of the tuned models nothing is kept. The finalists are the best candidates as the
    model is, of equals the first. before: what they were found with.

    Raises:
        UserError: every finalist diverged.
    """
    from tunescope.searching.trying import with_found

    finalists = sorted(candidates, key=lambda one: -one.dev)[: tuning.finalists]  # stable
    passes, points, best = before.passes, list(before.trace), None
    for one in finalists:
        own = with_found(bench, Found("", one.template, one.words, one.dev, 0))
        dev, taken = tuned_score(own, tuning.steps, seed)
        passes += taken
        if dev is None:
            say(f"{one.shown}: diverged in tuning")
            continue
        say(f"{one.shown}: {one.dev:.3f} on dev as the model is, {dev:.3f} after {tuning.steps} steps")
        points.append(Point(passes, f"{one.shown} (tuned)", dev))
        if best is None or dev > best[0]:
            best = dev, one
    if best is None:
        raise UserError(f"{tuning.name}: all {len(finalists)} finalists diverged in tuning; take a smaller tune.")
    dev, one = best
    counts = {f"finalists tuned for {tuning.steps} steps each; dev is after tuning, test without": len(finalists)}
    return Found("", one.template, dict(one.words), dev, passes, tuple(points), counts)
