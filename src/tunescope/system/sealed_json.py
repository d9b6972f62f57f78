"""JSON files that hold the sha256 of what they say, so that a value which the disk or a hand changed is never taken.

The digest is of the values, not of the bytes: a file that was laid out anew is the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.system import files

KEY = "digest"


def put(path: Path, value: Mapping[str, Any]) -> None:
    """`path` holds the value and its digest, or what it held before, also after a power cut."""
    plain = json.loads(files.as_text(value))
    files.put_json(path, {**plain, KEY: digest(plain)})


def read(path: Path, *, may_lack: bool = False) -> dict[str, Any]:
    """What was put there, without the digest.

    may_lack: the file may be of a version that wrote no digest; one that is there is verified all the same.

    Raises files.Damaged where the content is not what was written, and UserError where it cannot be read.
    """
    value = files.read_json(path)
    said = value.pop(KEY, None)
    if said is None and may_lack:
        return value
    if said is None:
        raise files.Damaged(f"{path} is damaged: it has no {KEY}, with which it was written.")
    if said != digest(value):
        raise files.Damaged(f"{path} is damaged: its values are not those of its {KEY}.")
    return value


def digest(value: Mapping[str, Any]) -> str:
    """sha256 (hex) over canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
