"""A recipe: one file in `recipes/`, found by its name. It says what to run and how the table reads.

Each module has TITLE (a sentence), SOURCE (paper and section), TAKES (the options of `Ask` beyond the name that it
heeds) and four functions:

    settings(ask) -> dict               what the numbers depend on, JSON; kept, and compared when a run is gone on with
    worlds(settings) -> list            `Pretraining`s to be made first
    units(settings) -> list[dict]       pieces of work, JSON, each done once
    work(settings, unit) -> dict        one piece, in a process of its own; JSON
    table(settings, found) -> Table     found: (unit, outcome) pairs

With KEEPS = True, work takes a third argument: a folder of the piece's own, for what is worth keeping beside numbers.
With RESUMES = True it takes one too, for what lets a piece go on that was stopped. It is removed when the piece is
done, whose seconds are then those of its last go.
own_dev(settings, unit) -> int may say how many development rows a piece has that are its own, for an estimate.
With GROWS = True, a table can be made of any of the pieces, and the rest be done later; so it can where each piece is
one of settings["lines"].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from tunescope.errors import UserError
from tunescope.models.load_options import check_loading
from tunescope.report.cells import Table
from tunescope.reproduce.ask import Ask, given
from tunescope.system import plugins

FOLDER = "reproduce.recipes"

Settings = dict[str, Any]
Found = Sequence[tuple[dict[str, Any], dict[str, Any]]]


class Recipe(Protocol):
    """What a module in `recipes/` has, as the head of this file says; KEEPS, RESUMES and GROWS may be left out."""

    TITLE: str
    SOURCE: str
    TAKES: Sequence[str]

    def settings(self, ask: Ask, /) -> Settings: ...
    def worlds(self, settings: Settings, /) -> Sequence[Any]: ...
    def units(self, settings: Settings, /) -> list[dict[str, Any]]: ...
    def work(self, settings: Settings, unit: dict[str, Any], /, *own: Path) -> dict[str, Any]: ...
    def table(self, settings: Settings, found: Found, /) -> Table: ...


def find(name: str) -> Recipe:
    """The recipe's module; UserError, with the names there are, for any other."""
    return cast(Recipe, plugins.load(FOLDER, plugins.among(recipes(), name, "recipe").replace("-", "_")))


def recipes() -> list[str]:
    """The names of all recipes."""
    return [name.replace("_", "-") for name in plugins.names(FOLDER)]


def listing() -> str:
    """One line a recipe: its name, what it shows, where from."""
    width = max(map(len, recipes()))
    return "\n".join(f"{name.ljust(width)}  {find(name).TITLE} ({find(name).SOURCE})" for name in recipes())


def check(ask: Ask, recipe: Recipe) -> None:
    """UserError for an option that the recipe has no use for, or lacks."""
    several = "models" in recipe.TAKES
    taken = [one.replace("models", "model") for one in recipe.TAKES]
    if len(ask.models) > 1 and not several:
        raise UserError(f"{ask.name} takes one --model, and {len(ask.models)} were given.")
    for one in given(ask):
        if (option := one.names[0].removeprefix("--")) not in taken:
            takes = ", ".join(f"--{name}" for name in taken) or "no options"
            raise UserError(f"{ask.name} has no use for --{option}; it takes {takes}.")
    if ask.template == "":
        raise UserError("--template is empty: give what a row is asked as, with its fields in braces.")
    if wrong := next((one for one in (*ask.lines, *ask.words) if one.startswith("-")), None):
        raise UserError(f"{wrong!r} is no line and no label word: nothing that begins with - can be typed as one.")
    if ask.protocol not in ("tuned", "paper"):
        raise UserError(f"--protocol {ask.protocol} is not known; it is 'tuned' or 'paper'.")
    if ask.seeds is not None and not 1 <= ask.seeds <= 1000:
        raise UserError(f"--seeds {ask.seeds}: at least one, and at most 1000.")
    sizes = {"steps": ask.steps, "accumulate": ask.accumulate, "batch-size": ask.batch_size, "inputs": ask.inputs}
    for option, count in (sizes | {"k": ask.k}).items():
        if count is not None and count < 1:
            raise UserError(f"--{option} {count}: at least one.")
    check_loading(ask.load, ask.device_map)
    if ask.quick and ask.protocol == "paper":
        raise UserError("--quick is a small size of the tuned protocol; leave out --protocol paper.")
