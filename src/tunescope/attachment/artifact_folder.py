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

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file
from safetensors.torch import save as save_bytes
from torch import Tensor

from tunescope.attachment.guards.marks import attached_to
from tunescope.attachment.guards.processes import written_once
from tunescope.attachment.held import Held
from tunescope.attachment.in_place import check_changes
from tunescope.attachment.listed import listed
from tunescope.attachment.made_for import check_base, known_tokenizer, tokenizer_hash
from tunescope.attachment.manifest import MANIFEST, VERSION, read_manifest, sealed
from tunescope.attachment.own_head import head_beneath
from tunescope.attachment.sites.choice import places_of
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.text_form import check_fields, methods, name_of
from tunescope.models.fingerprint import fingerprint
from tunescope.system import files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TENSORS = "tensors.safetensors"


def save(
    path: str | Path,
    artifacts: Sequence[Artifact] | Artifact,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    about: dict[str, Any] | None = None,
) -> Path:
    """Write artifacts that belong together into one new folder, whole or not at all.

    The manifest names the base weights and the tokenizer they were made for, the model's own head where they stand on
    one and have none, and the sha256 of the tensors and of itself.
    `about` is kept as it is, for the reader: task, template, label words, score. Returns the path.

    path: the new folder. artifacts: in the order in which they are attached. model: whose weights they were made for,
    attached or not. tokenizer: the one they were made with, if any; of artifacts that know it, it need not be given.

    Where several processes share the model, all of them call this, and the first writes.

    Raises UserError for a path that exists, within `in_place`, for what is no artifact, as a spec or a bank, and for an
    artifact of other weights, such as those that it has been merged into, or of another tokenizer, and for an `about`
    that is no dict, or whose task is none.
    """
    path = Path(path)
    if os.path.lexists(path):
        raise UserError(f"{path} exists: an artifact is never overwritten. Name a new folder, or remove that one.")
    check_changes(held := attached_to(model), "save()")
    if isinstance(held, Held):
        held.named_parameters()  # raises where they are others than act
    _check_about(about)
    artifacts = listed(artifacts, "save() takes an artifact, or a list such as tuned.artifacts")
    for artifact in artifacts:
        check_base(model, artifact, tokenizer)
    data = save_bytes(_apart(artifacts), metadata={"format": "pt"})
    head = head_beneath(model, artifacts)
    base = {"fingerprint": fingerprint(model), "model_type": model.config.model_type}
    manifest = {
        "format": VERSION,
        "artifacts": [_described(artifact, model) for artifact in artifacts],
        "base": base if head is None else base | {"head": head},
        "tokenizer": known_tokenizer(artifacts) if tokenizer is None else tokenizer_hash(tokenizer),
        "sha256": {TENSORS: hashlib.sha256(data).hexdigest()},
        "about": about or {},
    }
    contents = {TENSORS: data, MANIFEST: _json(sealed(json.loads(_json(manifest)))).encode()}
    written_once(model, str(path.absolute()), lambda: _write_folder(path, contents))
    return path


def _apart(artifacts: Sequence[Artifact]) -> dict[str, Tensor]:
    """By place and name, in memory of its own each, as a file has it: an artifact may be there twice."""
    found: dict[str, Tensor] = {}
    places: set[int] = set()
    for index, artifact in enumerate(artifacts):
        for name, value in artifact.tensors.items():
            whole = value.detach().cpu().contiguous()
            place = whole.untyped_storage().data_ptr()
            found[f"{index}/{name}"] = whole.clone() if place in places else whole
            places.add(place)
    return found


def _check_about(about: object) -> None:
    """Raises UserError for what `load` would take for damaged."""
    if about is not None and not (isinstance(about, dict) and isinstance(about.get("task"), dict | None)):
        raise UserError("save(about=...) is a dict, and its 'task' is one too, as in {'task': {'name': 'sst2'}}.")


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


def _read(path: Path, manifest: dict[str, Any], mapped: bool) -> list[Artifact]:
    data = b"" if mapped else (path / TENSORS).read_bytes()
    found = files.sha256(path / TENSORS) if mapped else hashlib.sha256(data).hexdigest()
    if found != manifest["sha256"][TENSORS]:
        raise UserError(f"{path / TENSORS} is damaged: its sha256 is not the one in {MANIFEST}. Copy it again.")
    tensors = load_file(path / TENSORS) if mapped else load_bytes(data)
    _check_finite(path, tensors)
    return [_restored(index, entry, manifest, tensors) for index, entry in enumerate(manifest["artifacts"])]


def _check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    for name, value in tensors.items():
        if not bool(value.isfinite().all()):
            raise UserError(
                f"{path / TENSORS}: {name!r} holds numbers that are not finite: training diverged, or it is damaged. "
                "Tune it again at a lower learning rate."
            )


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


def _is_read(value: Tensor) -> bool:
    return value.dtype in (torch.int64, torch.float64, torch.float32, torch.bfloat16, torch.float16)


def _restored(index: int, entry: dict[str, Any], manifest: dict[str, Any], tensors: dict[str, Any]) -> Artifact:
    method = methods().get(entry["method"])
    if method is None:
        raise UserError(
            f"The artifact is a {entry['method']!r}, which this tunescope does not have: upgrade to read it."
        )
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry["fields"].items()}
    prefix = f"{index}/"
    inner = sorted(name for name in tensors if name.startswith(prefix))  # in one order in all processes
    own = {name.removeprefix(prefix): tensors[name] for name in inner}
    spec, base, head = method(**values), manifest["base"]["fingerprint"], manifest["base"].get("head")
    check_fields(spec)
    for name, value in own.items():
        if (value.dtype == torch.int64) != (name in spec.whole_numbers) or not _is_read(value):
            raise TypeError(f"tensor {name!r} of {entry['method']} is of {value.dtype}")
    is_named = isinstance(base, str) and isinstance(head, str | None)
    if not is_named or any(isinstance(one, float) and not math.isfinite(one) for one in values.values()):
        raise TypeError(f"a field of {entry['method']}, or the base's fingerprint, cannot be used")
    artifact = Artifact(spec, own, base, manifest["tokenizer"])
    places = entry.get("sites")
    if not (places is None or (isinstance(places, dict) and all(isinstance(one, str) for one in places.values()))):
        raise TypeError(f"the sites of {entry['method']} cannot be used")
    return replace(artifact, in_force=entry["in_force"], places=places, head=head)
