"""Sections of draws side by side, in processes here or on other machines: each is kept as it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.probes.anchors.draws import Draws
from tunescope.probes.anchors.request import AnchorRequest, depends_on, rounds_of
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.system import pieces, plugins
from tunescope.system.pieces import Do, Pieces, Place, Told
from tunescope.trial import elsewhere, executor_name
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench

KIND, PIECE = "anchors", "section"


class DrawPieces(Pieces):
    """Sections of draws: {"what", "section", "seed", "named"}."""

    def __init__(self, kept: Draws, asks: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]):
        assert kept.folder is not None  # what is handed out is kept
        super().__init__(kept.folder, asks, say)
        self.kept = kept

    def lasts(self, name: str) -> bool:
        return self.kept.is_kept(name)

    def passes(self, name: str, told: Told) -> bool:
        return "refused" in told


def refused(
    request: AnchorRequest, bench: Bench, chosen: Sequence[str], kept: Draws, place: Place, say: Callable[[str], None]
) -> dict[str, str]:
    """Have all that is not kept yet measured there; name -> the reason of each that was refused.

    Raises as `pieces.done`.
    """
    every = [(section, seed) for section in chosen for seed in request.plan.seeds]
    asks = {
        kept.name(section, seed): {"what": PIECE, "section": section, "seed": seed, "named": f"{section}, draw {seed}"}
        for section, seed in every
    }
    left = {name: asked for name, asked in asks.items() if not kept.is_kept(name)}
    if not place.hands_out(len(left)):
        return {}
    known = elsewhere.left(bench) | {"executor": executor_name.show(place.executor)}
    known |= {"k": request.k, "rows": request.rows}
    told = pieces.done([DrawPieces(kept, left, say)], KIND, opened, known, place)
    return {name: one["refused"] for name, one in told.items() if "refused" in one}


def opened(run: Path, shared: Mapping[str, Any], share: float) -> Do:
    """In a worker: what measures a section of a draw."""
    bench = elsewhere.opened(run, shared, share, open_bench)
    request = AnchorRequest(bench.plan, shared["k"], shared["rows"])
    kept = Draws(run, depends_on(request, bench))
    rounds = {one.seed: one for one in rounds_of(request, bench)}

    def do(name: str, asked: Mapping[str, Any]) -> Told:
        section, seed = asked["section"], asked["seed"]
        pieces.check_id(name, kept.name(section, seed), PIECE)
        started = time.monotonic()
        try:
            kept.of(section, seed, lambda: plugins.load(DEMONSTRATIONS, section).measure(rounds[seed]))
        except UserError as problem:
            return {"line": f"{asked['named']} is refused", "refused": str(problem)}
        return {"line": f"{asked['named']} ({time.monotonic() - started:.0f} s)"}

    return do
