"""Artifacts written in the form of another library, checked before they are there; and such files read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tunescope.attachment.guards.marks import attached_to
from tunescope.attachment.initial_artifacts import check_fits
from tunescope.attachment.listed import listed
from tunescope.attachment.made_for import tokenizer_hash
from tunescope.attachment.own_head import check_head
from tunescope.errors import UserError
from tunescope.exchange.compare_outputs import changed_ids, difference, outputs
from tunescope.exchange.format import find_format
from tunescope.exchange.outgoing import Exported, Incoming, Outgoing
from tunescope.methods.artifact import Artifact
from tunescope.models.anatomy import anatomy
from tunescope.models.fingerprint import fingerprint
from tunescope.system import files

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NEAR = 10  # times what is allowed: a file that is wrong is mostly farther off
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def export(
    path: str | Path,
    artifacts: Sequence[Artifact] | Artifact,
    *,
    to: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    about: Mapping[str, Any] | None = None,
) -> Exported:
    """A new folder in the form `to`, whole or not at all; what was written is read back and compared first.

    The comparison is with the attached model on a fixed sample of ids, by the form's own rules; it may differ by 1e-9
    of the largest output in float64, 1e-4 in float32, and by a few roundings in half precision; in float64 by 1e-4
    too where keys stand at other positions in the form, for transformers has the angles of rotations in float32, and by
    1e-5 where the form has a LoRA in float32.

    Raises:
        UserError: the folder exists; there is no such form; the form cannot hold these artifacts; they are not of this
            model; what was written gives other outputs, in which case nothing is kept.
    """
    path = Path(path)
    form = find_format(to, "write")
    if os.path.lexists(path):
        raise UserError(f"{path} exists: nothing is ever overwritten. Name a new folder, or remove that one.")
    given = _outgoing(artifacts, model, tokenizer, about or {})
    with files.new_folder(path) as beside:
        notes = form.write(given, beside)
        found = form.check(given, beside) if hasattr(form, "check") else None
        _check_difference(found, to, model, form.rounding(given) if hasattr(form, "rounding") else 0.0)
        notes += _doubts(found, given)
    return Exported(path, found, form.SERVES, tuple(notes))


def read(
    path: str | Path, *, form: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None
) -> Incoming:
    """The artifacts of a folder that another library wrote, made for this model and tokenizer, with notes.

    Raises:
        UserError: there is no such form or folder; the files are damaged; they hold what has no place here; they do
            not fit the model.
    """
    path = Path(path)
    module = find_format(form, "read")
    if not path.is_dir():
        raise UserError(f"There is no folder {path} to read {form} files from.")
    _check_bare(model)
    found: Incoming = module.read(path, model, tokenizer)
    known = None if tokenizer is None else tokenizer_hash(tokenizer)
    made = [replace(artifact, base=fingerprint(model), tokenizer=known) for artifact in found.artifacts]
    for artifact in made:
        check_fits(model, artifact)
    return Incoming(made, found.notes)


def _outgoing(
    artifacts: Sequence[Artifact] | Artifact,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    about: Mapping[str, Any],
) -> Outgoing:
    found = listed(artifacts, "export() takes an artifact, or a list as tunescope.load(FOLDER) gives it")
    _check_bare(model)
    for artifact in found:
        check_fits(model, artifact, tokenizer)
    check_head(model, found)
    return Outgoing(model, tokenizer, tuple(artifact.fold() for artifact in found), about)


def _doubts(found: float | None, given: Outgoing) -> list[str]:
    """Whether a difference is small beside what the artifacts themselves change, which may be little."""
    if found is None or found < 1e-6:  # rounding of float32
        return []
    also = changed_ids(given.model, given.artifacts)
    effect = difference(outputs(given.model, (), also), outputs(given.model, given.artifacts, also))
    if effect > 10 * found:
        return []
    return [
        f"the artifact itself changes outputs by {effect:.1e} of the largest, so in this precision the comparison says "
        "little: export from the model in float32 to be sure"
    ]


def _check_bare(model: PreTrainedModel) -> None:
    if attached_to(model) is not None:
        raise UserError("This model has artifacts attached: detach() first.")


def _check_difference(difference: float | None, to: str, model: PreTrainedModel, rounding: float) -> None:
    """UserError for a difference beyond the model's precision, and beyond what the form rounds in any."""
    dtype = anatomy(model).table.weight.dtype
    allowed = max(TOLERANCE[dtype], rounding)
    near = difference is not None and difference <= NEAR * allowed and dtype != torch.float64
    beyond = " So little may be rounding: export from the model loaded in float64." if near else ""
    if difference is not None and not difference <= allowed:
        raise UserError(
            f"What was written as {to!r} differs from the attached model by {difference:.1e} of its largest output, "
            f"where {allowed:.0e} is allowed in {dtype}: nothing was kept.{beyond}"
        )
