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
    """Of one study. folder: None keeps nothing. depends_on: all that the numbers depend on, but section and seed."""

    folder: Path | None
    depends_on: Mapping[str, Any]

    def of(self, section: str, seed: int, measure: Callable[[], Measured]) -> Measured:
        """As kept, or measured and kept; what is damaged is measured anew. Whichever it is, it went through JSON."""
        if self.folder is None:
            return _known(files.finite(measure()))
        known = run_folder.identity({**self.depends_on, "section": section, "seed": seed})
        path = self.folder / f"{section}-{seed}-{known[:12]}.json"
        if path.exists():
            try:
                return _known(sealed_json.read(path))
            except files.Damaged:
                files.remove(path)
        files.make_folder(self.folder)
        sealed_json.put(path, files.finite(measure()))
        return _known(sealed_json.read(path))


def _known(found: Measured) -> Measured:
    return {name: _with_nan(value) for name, value in found.items()}


def _with_nan(value: object) -> object:
    """nan for what JSON had no word for."""
    if value is None:
        return math.nan
    if isinstance(value, dict):
        return {key: _with_nan(one) for key, one in value.items()}
    return [_with_nan(one) for one in value] if isinstance(value, list) else value
