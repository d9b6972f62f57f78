"""Searches at their seeds side by side, in processes here or on other machines: each is kept as it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.search import seeds
from tunescope.search.names import listed, parse, show
from tunescope.search.search import Say, Search
from tunescope.search.seeds import Seed
from tunescope.system import files, pieces
from tunescope.system.pieces import Do, Pieces, Place, Told
from tunescope.system.say import say as printed
from tunescope.trial import elsewhere, executor_name
from tunescope.trial.bench import Bench

KIND = "search"


class SeedPieces(Pieces):
    """Searches at seeds that the folder does not hold yet, by their identities."""

    def __init__(self, bench: Bench, left: Mapping[str, Seed], folder: Path, say: Say):
        asks = {
            name: {"what": KIND, "method": show(one.search), "seed": one.seed, "place": one.place, "named": str(one)}
            for name, one in left.items()
        }
        super().__init__(folder, asks, say)
        self.bench, self.left = bench, left

    def lasts(self, name: str) -> bool:
        return seeds.kept(self.bench, self.left[name], self.folder) is not None

    def passes(self, name: str, told: Told) -> bool:
        return "refused" in told


def refused(bench: Bench, every: Sequence[Seed], folder: Path, place: Place, say: Say) -> dict[str, str]:
    """Have all that is not kept yet found there; identity -> the reason of each that was refused.

    Raises as `pieces.done`.
    """
    left = {seeds.identity(bench, one): one for one in every if seeds.kept(bench, one, folder) is None}
    if not place.hands_out(len(left)):
        return {}
    known = elsewhere.left(bench) | {"executor": executor_name.show(place.executor), "passes": every[0].passes}
    known |= {"searches": list(dict.fromkeys(show(one.search) for one in every))}
    told = pieces.done([SeedPieces(bench, left, folder, say)], KIND, opened, known, place)
    return {name: one["refused"] for name, one in told.items() if "refused" in one}


def opened(run: Path, shared: Mapping[str, Any], share: float) -> Do:
    """In a worker: what searches at a seed."""
    chosen: Sequence[Search] = listed(tuple(shared["searches"]))
    bench = elsewhere.opened(run, shared, share, lambda plan: seeds.opened(plan, chosen)[0])

    def do(name: str, asked: Mapping[str, Any]) -> Told:
        one = Seed(parse(asked["method"]), asked["seed"], shared["passes"], asked["place"])
        pieces.check_id(name, seeds.identity(bench, one), KIND)
        try:
            return {"line": seeds.line(one, seeds.find(bench, one, run, printed))}
        except files.DiskError:
            raise
        except UserError as problem:
            return {"line": f"{one} is refused", "refused": str(problem)}

    return do
