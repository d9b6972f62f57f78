"""A recipe: one file in `reproduce/`, found by its name. It says what to run and how the table reads.

Each module has TITLE (a sentence), SOURCE (paper and section), TAKES (the options of `Ask` beyond the name that it
heeds) and four functions:

    settings(ask) -> dict               what the numbers depend on, JSON; kept, and compared when a run is gone on with
    worlds(settings) -> list            `Pretraining`s to be made first
    units(settings) -> list[dict]       pieces of work, JSON, each done once
    work(settings, unit) -> dict        one piece, in a process of its own; JSON
    table(settings, found) -> Table     found: (unit, outcome) pairs

With KEEPS = True, work takes a third argument: a folder of the piece's own, for what is worth keeping beside numbers.
"""

import difflib
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup

from tunescope.errors import UserError
from tunescope.registry import names

Settings = dict[str, Any]
Found = Sequence[tuple[dict[str, Any], dict[str, Any]]]


@dataclass(frozen=True)
class Ask:
    """What the user typed. None: as the recipe has it."""

    name: str
    protocol: str = "tuned"
    quick: bool = False
    seeds: int | None = None
    model: str | None = None
    data: str | None = None
    others: tuple[str, ...] = ()  # models beside the first, for recipes that take several
    steps: int | None = None
    precision: str = "auto"
    accumulate: int | None = None

    @property
    def models(self) -> tuple[str, ...]:
        return () if self.model is None else (self.model, *self.others)


@dataclass(frozen=True)
class Cell:
    """Our values, one a seed (or one in all), beside the paper's words for the same cell."""

    values: tuple[float, ...] = ()
    paper: str = ""
    text: str = ""  # shown instead of values, where there is a text and no number
    digits: int = 3
    bounds: tuple[float, float] = (-math.inf, math.inf)  # what a value can be

    @classmethod
    def of(cls, outcomes: Iterable[Mapping[str, Any]], *path: str, paper: str = "") -> "Cell":
        """A share from every outcome, at `path` in it."""
        return cls(tuple(float(at(outcome, path)) for outcome in outcomes), paper, bounds=(0.0, 1.0))

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean over seeds, within `bounds`; None for fewer than two."""
        if len(self.values) < 2:
            return None
        from scipy.stats import t

        half = float(t.ppf(0.975, len(self.values) - 1)) * stdev(self.values) / math.sqrt(len(self.values))
        low, high = self.bounds
        return max(low, fmean(self.values) - half), min(high, fmean(self.values) + half)


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns, what is to be said under them, and what only the result file holds.

    pictures: file name -> <svg>, written beside the result and drawn on its page.
    """

    columns: tuple[str, ...]
    rows: list[tuple[str, list[Cell]]]
    notes: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, Markup] = field(default_factory=dict)


def at(outcome: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys."""
    return reduce(getitem, path, outcome)


def find(name: str) -> Any:
    """The recipe's module; UserError, with the names there are, for any other."""
    known = recipes()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"There is no recipe {name!r}.{hint} There are: {', '.join(known)}.")
    return importlib.import_module(f"tunescope.reproduce.{name.replace('-', '_')}")


def recipes() -> list[str]:
    """The names of all recipes."""
    return [name.replace("_", "-") for name in names("reproduce")]


def listing() -> str:
    """One line a recipe: its name, what it shows, where from."""
    width = max(map(len, recipes()))
    return "\n".join(f"{name.ljust(width)}  {find(name).TITLE} ({find(name).SOURCE})" for name in recipes())


def check(ask: Ask, recipe: Any) -> None:
    """UserError for an option that the recipe has no use for, or lacks."""
    given = {"protocol": ask.protocol != "tuned", "seeds": ask.seeds is not None, "quick": ask.quick}
    given |= {"model": bool(ask.models), "data": ask.data is not None}
    given |= {"steps": ask.steps is not None, "precision": ask.precision != "auto"}
    given |= {"accumulate": ask.accumulate is not None}
    several = "models" in recipe.TAKES
    taken = [one.replace("models", "model") for one in recipe.TAKES]
    if len(ask.models) > 1 and not several:
        raise UserError(f"{ask.name} takes one --model, and {len(ask.models)} were given.")
    for option, is_given in given.items():
        if is_given and option not in taken:
            takes = ", ".join(f"--{name}" for name in taken) or "no options"
            raise UserError(f"{ask.name} has no use for --{option}; it takes {takes}.")
    if ask.protocol not in ("tuned", "paper"):
        raise UserError(f"--protocol {ask.protocol} is not known; it is 'tuned' or 'paper'.")
    if ask.seeds is not None and ask.seeds < 1:
        raise UserError(f"--seeds {ask.seeds}: at least one.")
    for option, count in (("steps", ask.steps), ("accumulate", ask.accumulate)):
        if count is not None and count < 1:
            raise UserError(f"--{option} {count}: at least one.")
    if ask.quick and ask.protocol == "paper":
        raise UserError("--quick is a small size of the tuned protocol; leave out --protocol paper.")
