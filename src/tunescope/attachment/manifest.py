"""`tunescope.json`, which says what a saved artifact is, with a digest over all that it says."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunescope.errors import Note, UserError

MANIFEST = "tunescope.json"
VERSION = 2
UNSEALED = 1  # the last format whose manifests have no digest


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the digest of all else that it says, beside those of the other files."""
    return {**manifest, "sha256": {**manifest["sha256"], MANIFEST: digest(manifest)}}


def digest(manifest: Mapping[str, Any]) -> str:
    """sha256 (hex) of what the manifest says, but for this number itself: of values, however they are laid out."""
    others = {name: value for name, value in manifest["sha256"].items() if name != MANIFEST}
    said = json.dumps({**manifest, "sha256": others}, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """What a folder says of its artifacts, as it was written; a `Note` is warned of where it is too old to know.

    Raises UserError where the folder is no saved artifact, is damaged, or is of a newer format.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        newer = manifest["format"] > VERSION
    except FileNotFoundError as error:
        raise UserError(f"{path} is no saved artifact: {Path(error.filename).name} is not there.") from None
    except IsADirectoryError:
        raise UserError(f"{path / MANIFEST} is a folder, and no file: the saved artifact is damaged.") from None
    except NotADirectoryError:
        raise UserError(f"{path} is no saved artifact, which is a folder: it is a file.") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror or problem}).") from problem
    except (ValueError, RecursionError):
        raise UserError(f"{path / MANIFEST} is not readable as JSON: the folder is damaged.") from None
    except (KeyError, TypeError) as problem:
        raise UserError(f"{path / MANIFEST} does not describe its folder ({problem!r}): it is damaged.") from None
    if newer:
        raise UserError(f"{path} was written by a newer tunescope (format {manifest['format']}): upgrade to read it.")
    _check_said(path, manifest)
    _check_digest(path, manifest)
    found: dict[str, Any] = manifest
    return found


def _check_said(path: Path, manifest: dict[str, Any]) -> None:
    about, base = manifest.get("about"), manifest.get("base")
    task = about.get("task") if isinstance(about, dict) else None
    is_named = isinstance(base, dict) and all(isinstance(base.get(key), str) for key in ("fingerprint", "model_type"))
    if not isinstance(about, dict | None) or not isinstance(task, dict | None) or not is_named:
        raise UserError(f"{path / MANIFEST} does not describe its folder (base, or about): it is damaged.")


def _check_digest(path: Path, manifest: dict[str, Any]) -> None:
    """One of the newest format has a digest; where there is one it holds, whatever the format says of itself."""
    digests = manifest.get("sha256")
    if not isinstance(digests, dict):
        raise UserError(f"{path / MANIFEST} does not describe its folder (sha256): it is damaged.")
    if MANIFEST not in digests and manifest["format"] == UNSEALED:
        said = f"{path} was saved by an older tunescope, whose {MANIFEST} has no digest: what it says is not verified."
        warnings.warn(Note(said), stacklevel=2)
    elif digests.get(MANIFEST) != digest(manifest):
        raise UserError(f"{path / MANIFEST} is damaged: its sha256 is not the one that it holds. Copy it again.")
