"""What a search is: settings that look for words, on a model and data, within so many passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tunescope.errors import UserError
from tunescope.system import files

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench

Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """A candidate that was scored on the development rows: what it says, its score, and the passes spent by then."""

    passes: int
    shown: str
    dev: float


@dataclass(frozen=True)
class Found:
    """The candidate with the best score on the development rows (the first of equals), and what it took.

    text: words to stand in front of every row, "" for none. template, words: the task's, as they were or as found.
    passes: rows that went forward through the model; a backward pass counts as two more. Development rows are counted.
    counts: steps taken, what they were chosen by, and what was dropped or changed on the way, such as
        {"steps": 20, "prompts that did not come back": 3}.
    """

    text: str
    template: str
    words: Mapping[str, str]
    dev: float
    passes: int
    trace: tuple[Point, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class Search(ABC):
    """A frozen dataclass of settings: what the user types, as in pez:length=10,rate=0.1."""

    names_labels: ClassVar[bool] = False  # whether it looks for the label words, so that none need be known before
    in_front: ClassVar[bool] = True  # whether it looks for a text in front of all rows

    def reads(self) -> Mapping[str, str]:
        """File -> sha256 of what it reads from disk beside the model and the data, so that other files are seen."""
        return {}

    @abstractmethod
    def search(self, bench: Bench, passes: int, seed: int, say: Say) -> Found:
        """What it finds on the training rows of `bench` within `passes`, chosen by the development rows.

        Only a last step that is dearer than all before it may go beyond them, and is not looked at.
        The test rows are never looked at; the model is left as it was. The same seed gives the same answer.

        Raises:
            UserError: the model, the task or the settings do not allow this search, or the passes do not suffice for
                one step of it.
        """


def contents(folder: str) -> dict[str, str]:
    """File -> sha256 of a folder's own files; of the name of a model on a hub none."""
    place = Path(folder)
    found = sorted(place.iterdir()) if folder and place.is_dir() else []
    return {path.name: _sha256(path, path.stat().st_size, path.stat().st_mtime_ns) for path in found if path.is_file()}


@cache
def _sha256(path: Path, _size: int, _changed: int) -> str:
    """Read once, as long as the file is of that size and time: a search asks for its identity often."""
    return files.sha256(path)


def check_positive(search: Search, *names: str) -> None:
    """Raises UserError for a field that is not above 0."""
    for name in names:
        if not (given := getattr(search, name)) > 0:
            raise UserError(f"{type(search).__name__}({name}={given}) must be above 0.")
