"""Artifacts as a folder: `tunescope.json` says what they are, `tensors.safetensors` holds them; nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file
from safetensors.torch import save as save_bytes

from tunescope.attachment.sites.choice import places_of
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.text_form import check_fields, methods, name_of
from tunescope.models.fingerprint import fingerprint
from tunescope.system import files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MANIFEST = "tunescope.json"
TENSORS = "tensors.safetensors"
VERSION = 1


def save(
    path: str | Path,
    artifacts: Sequence[Artifact] | Artifact,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    about: dict[str, Any] | None = None,
) -> Path:
    """Write artifacts that belong together into one new folder, whole or not at all.

    The manifest names the base weights and the tokenizer they were made for, and the sha256 of the tensors.
    `about` is kept as it is, for the reader: task, template, label words, score. Returns the path.

    path: the new folder. artifacts: in the order in which they are attached. model: whose weights they were made for,
    attached or not. tokenizer: the one they were made with, if any.

    Raises UserError for a path that exists.
    """
    path = Path(path)
    if os.path.lexists(path):
        raise UserError(f"{path} exists: an artifact is never overwritten. Name a new folder, or remove that one.")
    artifacts = [artifacts] if isinstance(artifacts, Artifact) else list(artifacts)
    tensors = {
        f"{index}/{name}": value.detach().cpu().contiguous()
        for index, artifact in enumerate(artifacts)
        for name, value in artifact.tensors.items()
    }
    data = save_bytes(tensors, metadata={"format": "pt"})
    manifest = {
        "format": VERSION,
        "artifacts": [_described(artifact, model) for artifact in artifacts],
        "base": {"fingerprint": fingerprint(model), "model_type": model.config.model_type},
        "tokenizer": None if tokenizer is None else tokenizer_hash(tokenizer),
        "sha256": {TENSORS: hashlib.sha256(data).hexdigest()},
        "about": about or {},
    }
    _write_folder(path, {TENSORS: data, MANIFEST: _json(manifest).encode()})
    return path


def load(path: str | Path, *, mapped: bool = False) -> list[Artifact]:
    """The artifacts of a folder, checked against its sha256; `attach` checks them against the model.

    path: the folder, as `save` wrote it. Nothing in it is run.
    mapped: the tensors are views of the file, which the system pages in and out; the file must not change while they
    are in use.

    Raises UserError for a folder that is no saved artifact, is damaged, or is of a newer format.
    """
    path = Path(path)
    manifest = read_manifest(path)
    try:
        return _read(path, manifest, mapped)
    except FileNotFoundError as error:
        raise UserError(f"{path} is no saved artifact: {Path(error.filename).name} is not there.") from None
    except OSError as problem:
        raise UserError(f"{path / TENSORS} cannot be read ({problem.strerror or problem}): it is damaged.") from problem
    except (KeyError, TypeError, AttributeError, SafetensorError) as problem:
        raise UserError(f"{path / MANIFEST} does not describe its folder ({problem!r}): it is damaged.") from None


def read_manifest(path: Path) -> dict[str, Any]:
    """What a folder says of its artifacts. Raises UserError where it is no saved artifact, or of a newer format."""
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
    _check_manifest(path, manifest)
    found: dict[str, Any] = manifest
    return found


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    about, base = manifest.get("about"), manifest.get("base")
    task = about.get("task") if isinstance(about, dict) else None
    is_named = isinstance(base, dict) and all(isinstance(base.get(key), str) for key in ("fingerprint", "model_type"))
    if not isinstance(about, dict | None) or not isinstance(task, dict | None) or not is_named:
        raise UserError(f"{path / MANIFEST} does not describe its folder (base, or about): it is damaged.")


def _read(path: Path, manifest: dict[str, Any], mapped: bool) -> list[Artifact]:
    data = b"" if mapped else (path / TENSORS).read_bytes()
    found = files.sha256(path / TENSORS) if mapped else hashlib.sha256(data).hexdigest()
    if found != manifest["sha256"][TENSORS]:
        raise UserError(f"{path / TENSORS} is damaged: its sha256 is not the one in {MANIFEST}. Copy it again.")
    tensors = load_file(path / TENSORS) if mapped else load_bytes(data)
    return [_restored(index, entry, manifest, tensors) for index, entry in enumerate(manifest["artifacts"])]


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 (hex) of the vocabulary, token by token."""
    listed = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    return hashlib.sha256(listed.encode()).hexdigest()


def _write_folder(path: Path, contents: dict[str, bytes]) -> None:
    """A new folder with these files, by way of a sibling that is flushed to disk and then renamed."""
    with files.new_folder(path) as beside:
        for name, data in contents.items():
            files.write(beside / name, data)


def _json(manifest: dict[str, Any]) -> str:
    try:
        return json.dumps(manifest, indent=1, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise UserError(f"about= holds what JSON cannot ({problem}): give it text, finite numbers, lists.") from None


def _described(artifact: Artifact, model: PreTrainedModel) -> dict[str, Any]:
    described = {
        "method": name_of(type(artifact.spec)),
        "fields": asdict(artifact.spec),  # type: ignore[call-overload]
        "in_force": artifact.in_force,
    }
    places = places_of(model, artifact.spec)
    return described | ({"sites": places} if places else {})


def _restored(index: int, entry: dict[str, Any], manifest: dict[str, Any], tensors: dict[str, Any]) -> Artifact:
    method = methods().get(entry["method"])
    if method is None:
        raise UserError(
            f"The artifact is a {entry['method']!r}, which this tunescope does not have: upgrade to read it."
        )
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry["fields"].items()}
    prefix = f"{index}/"
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    spec, base = method(**values), manifest["base"]["fingerprint"]
    check_fields(spec)
    if not isinstance(base, str) or any(isinstance(one, float) and not math.isfinite(one) for one in values.values()):
        raise TypeError(f"a field of {entry['method']}, or the base's fingerprint, cannot be used")
    artifact = Artifact(spec, own, base, manifest["tokenizer"])
    places = entry.get("sites")
    if not (places is None or (isinstance(places, dict) and all(isinstance(one, str) for one in places.values()))):
        raise TypeError(f"the sites of {entry['method']} cannot be used")
    return replace(artifact, in_force=entry["in_force"], places=places)
