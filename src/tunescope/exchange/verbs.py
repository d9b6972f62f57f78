"""`tunescope export` and `tunescope import`: folders in, folders out, and the lines that are printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tunescope.attachment import artifact_folder
from tunescope.attachment.manifest import read_manifest
from tunescope.errors import UserError
from tunescope.exchange import convert
from tunescope.exchange.format import find_format
from tunescope.methods.text_form import show
from tunescope.models.load import load_model
from tunescope.system import files


def exported(artifact: str, to: str, model: str, out: str) -> Iterator[str]:
    """Write the saved artifact in the form `to` into a new folder; what was written, its difference, where it serves.

    Raises:
        UserError: as `tunescope.exchange.convert.export`, and where the artifact or the model cannot be read.
    """
    find_format(to, "write")
    artifacts = artifact_folder.load(artifact)
    about = read_manifest(Path(artifact)).get("about") or {}
    answers = (about.get("task") or {}).get("by")
    base, tokenizer = load_model(model, in_words=answers == "words")  # an encoder then has the head that gives them
    with files.errors_told(out):
        done = convert.export(out, artifacts, to=to, model=base, tokenizer=tokenizer, about=about)
    yield f"written: {done.path}"
    yield from (f"note: {note}" for note in done.notes)
    if done.difference is not None:
        yield f"read back, it differs from the attached model by {done.difference:.1e} of the largest output"
    yield f"serves: {done.serves}"


def imported(folder: str, form: str, model: str, out: str) -> Iterator[str]:
    """Read a folder of the form and save what it holds as tunescope's own; its methods and what to know of them.

    Raises:
        UserError: as `tunescope.exchange.convert.read` and `save`, and where the model cannot be read.
    """
    find_format(form, "read")
    if Path(out).exists():
        raise UserError(f"{out} exists: an artifact is never overwritten. Name a new folder, or remove that one.")
    base, tokenizer = load_model(model)
    found = convert.read(folder, form=form, model=base, tokenizer=tokenizer)
    about = {"imported": {"from": form, "notes": found.notes}}
    with files.errors_told(out):
        artifact_folder.save(out, found.artifacts, model=base, tokenizer=tokenizer, about=about)
    yield f"read: {show([artifact.spec for artifact in found.artifacts])}"
    yield from (f"note: {note}" for note in found.notes)
    yield f"written: {out}"
