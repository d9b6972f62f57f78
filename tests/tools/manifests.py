"""Manifests of saved artifacts changed as somebody would who knows how they are digested."""

import hashlib
import json
from pathlib import Path
from typing import Any

NAME = "tunescope.json"


def sealed(manifest: Any) -> Any:
    """With a digest that holds: sha256 of its JSON with keys in order, the digest itself left out."""
    digests = manifest.get("sha256") if isinstance(manifest, dict) else None
    if not isinstance(digests, dict):
        return manifest
    others = {name: value for name, value in digests.items() if name != NAME}
    said = json.dumps({**manifest, "sha256": others}, sort_keys=True)
    return {**manifest, "sha256": {**others, NAME: hashlib.sha256(said.encode()).hexdigest()}}


def write(folder: Path, manifest: dict[str, Any]) -> Path:
    (folder / NAME).write_text(json.dumps(sealed(manifest)))
    return folder
