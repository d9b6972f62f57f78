"""Small made-up files in the public formats."""

import gzip
import json
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared/data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the stored copies are not here")


def put(path: Path, text: str) -> Path:
    """The text as a UTF-8 file, gzipped where its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def jsonl(path: Path, *rows: dict) -> Path:
    return put(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def stored(place: str) -> list[dict]:
    """The rows of a stored copy, by the json module alone."""
    with gzip.open(SHARED / place, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
