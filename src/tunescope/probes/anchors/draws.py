"""What a section measured of a draw, kept as it ends, so that a study that was stopped goes on where it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunescope.system import files, run_folder, sealed_json

Measured = dict[str, Any]


@dataclass(frozen=True)
class Draws:
    """Of one study. folder: of the run; None keeps nothing.

    depends_on: all that the numbers depend on, but section and seed.
    """

    folder: Path | None
    depends_on: Mapping[str, Any]

    def name(self, section: str, seed: int) -> str:
        """Of a section of a draw, by all that its numbers depend on."""
        known = run_folder.identity({**self.depends_on, "section": section, "seed": seed})
        return f"{section}-{seed}-{known[:12]}"

    def is_kept(self, name: str) -> bool:
        """Whether it lies there whole."""
        return self.folder is not None and run_folder.kept(self.folder, self._path(name)) is not None

    def of(self, section: str, seed: int, measure: Callable[[], Measured]) -> Measured:
        """As kept, or measured and kept; what is damaged is measured anew. Whichever it is, it went through JSON."""
        if self.folder is None:
            return _known(files.finite(measure()))
        name = self.name(section, seed)
        if not self.is_kept(name):
            found = files.finite(measure())
            files.make_folder(self._path(name).parent)
            sealed_json.put(self._path(name), found)
        return _known(sealed_json.read(self._path(name)))

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "draws" / f"{name}.json"


def _known(found: Measured) -> Measured:
    return {name: _with_nan(value) for name, value in found.items()}


def _with_nan(value: object) -> object:
    """nan for what JSON had no word for."""
    if value is None:
        return math.nan
    if isinstance(value, dict):
        return {key: _with_nan(one) for key, one in value.items()}
    return [_with_nan(one) for one in value] if isinstance(value, list) else value
