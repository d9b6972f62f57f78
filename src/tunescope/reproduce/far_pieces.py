"""A recipe's pieces on other machines: each goes as an id, and its outcome lies in the recipe's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunescope.reproduce import piece
from tunescope.reproduce.recipe import Recipe, Settings, find
from tunescope.system import machine, pieces, run_folder
from tunescope.system.pieces import Do, Pieces, Place, Told
from tunescope.trial import executor_name

KIND = "recipe"


class RecipePieces(Pieces):
    """Worlds, or units: {"what": "world" or "piece", "number", "named"}."""

    def lasts(self, name: str) -> bool:
        """Of a world it is not known: it lies in a cache that this machine may not see."""
        is_piece = self.asks[name]["what"] == "piece"
        return is_piece and run_folder.kept(self.folder, piece.path(self.folder, name)) is not None

    def passes(self, name: str, told: Told) -> bool:
        return self.asks[name]["what"] == "world" or piece.passing(piece.path(self.folder, name)).exists()


def done(
    folder: Path, recipe: Recipe, settings: Settings, missing: Sequence[int], place: Place, say: Callable[[str], None]
) -> None:
    """The worlds, and behind them the units of these numbers. Raises as `pieces.done`."""
    worlds, units = recipe.worlds(settings), recipe.units(settings)
    made = {f"world-{i}": {"what": "world", "number": i, "named": str(one)} for i, one in enumerate(worlds)}
    asked = {i: {"what": "piece", "number": i, "named": piece.named(units[i])} for i in missing}
    rounds = [made, {run_folder.identity(units[i]): one for i, one in asked.items()}]
    gpus = float(piece.compares(recipe) and machine.default_device().type == "cuda")
    known = {"executor": executor_name.show(place.executor)}
    pieces.done([RecipePieces(folder, asks, say) for asks in rounds], KIND, opened, known, replace(place, gpus=gpus))


def opened(run: Path, shared: Mapping[str, Any], share: float) -> Do:
    """In a worker: what does the pieces of the folder's recipe."""
    piece.single(share)
    config = run_folder.read_config(run)
    recipe, settings = find(config["recipe"]), config["settings"]

    def do(name: str, asked: Mapping[str, Any]) -> Told:
        if asked["what"] == "world":
            return {"line": piece.world(recipe.worlds(settings)[asked["number"]])}
        unit = recipe.units(settings)[asked["number"]]
        pieces.check_id(name, run_folder.identity(unit), "piece")
        return {"line": piece.unit(config["recipe"], settings, unit, piece.path(run, name))}

    return do
