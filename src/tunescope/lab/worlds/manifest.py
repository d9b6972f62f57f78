"""The manifest of a model folder: how it was made, and a sha256 of every other file in it."""

import json
import platform
from hashlib import sha256
from pathlib import Path
from typing import Any

from tunescope.system.package_version import package_version

NAME = "MANIFEST.json"


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of every file in the folder but the manifest."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != NAME)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in files}


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write ``facts`` with the versions in use and the digests of what is in the folder now."""
    packages = ("numpy", "tokenizers", "torch", "transformers", "tunescope")
    versions = {"python": platform.python_version(), **{name: package_version(name) for name in packages}}
    manifest = {**facts, "versions": versions, "sha256": digests(folder)}
    (folder / NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest's content."""
    content: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
    return content
