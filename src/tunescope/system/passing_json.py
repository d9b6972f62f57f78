"""JSON that is of use while it is new, such as where a run is: whole or absent, and not synced."""

import json
from contextlib import suppress
from os import replace  # not one of those that a test fails in turn: nothing is lost with this one
from pathlib import Path

from tunescope.system import files


def put(path: Path, value: object) -> None:
    """The file holds the value; a disk that does not take it stops nothing, and nothing is left beside it."""
    made = files.beside(path)
    with suppress(OSError):
        try:
            made.write_text(json.dumps(value))
            replace(made, path)
        finally:
            files.remove(made)
