"""`tunescope export` and `tunescope import`: folders in, folders out, and the lines that are printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from tunescope.attachment import artifact_folder
from tunescope.attachment.made_for import check_family
from tunescope.attachment.manifest import read_manifest
from tunescope.errors import UserError
from tunescope.exchange import convert
from tunescope.exchange.format import find_format
from tunescope.exchange.site_names import ranges
from tunescope.methods.artifact import Artifact, SiteDelta
from tunescope.methods.deltas.head import Head
from tunescope.methods.text_form import show
from tunescope.models.anatomy import anatomy
from tunescope.models.load import config_of, load_model
from tunescope.system import files

FEW = 5  # names that are read at a glance


def exported(artifact: str, to: str, model: str, out: str) -> Iterator[str]:
    """Write the saved artifact in the form `to` into a new folder; what was written, its difference, where it serves.

    Raises:
        UserError: as `tunescope.exchange.convert.export`, and where the artifact or the model cannot be read.
    """
    find_format(to, "write")
    artifacts = artifact_folder.load(artifact)
    manifest = read_manifest(Path(artifact))
    about = manifest.get("about") or {}
    answers = (about.get("task") or {}).get("by")
    try:
        base, tokenizer = load_model(model, in_words=answers == "words")  # an encoder then has the head that gives them
    except UserError:
        check_family(artifacts[0], manifest["base"]["model_type"], config_of(model).model_type)
        raise
    if anatomy(base).kind == "decoder" and any(isinstance(artifact.spec, Head) for artifact in artifacts):
        base = base.base_model  # its logits are the head's, and no words
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
    reader = find_format(form, "read")
    if Path(out).exists():
        raise UserError(f"{out} exists: an artifact is never overwritten. Name a new folder, or remove that one.")
    base, tokenizer = load_model(model)
    if hasattr(reader, "model_for"):
        base = reader.model_for(Path(folder), base)
    found = convert.read(folder, form=form, model=base, tokenizer=tokenizer)
    about = {"imported": {"from": form, "notes": found.notes}}
    with files.errors_told(out):
        artifact_folder.save(out, found.artifacts, model=base, tokenizer=tokenizer, about=about)
    yield f"read: {' + '.join(map(_read, found.artifacts))}"
    yield from (f"note: {note}" for note in found.notes)
    yield f"written: {out}"


def _read(artifact: Artifact) -> str:
    """The method as it is typed; where it acts by ranges of layers, where that were a name for each."""
    spec = artifact.spec
    field = "sites" if isinstance(spec, SiteDelta) else "only"
    names = getattr(spec, field, ())
    if len(names) < FEW or (isinstance(spec, SiteDelta) and not any(map(str.isdigit, ".".join(names)))):
        return show([spec])
    default = next(one.default for one in fields(spec) if one.name == field)  # type: ignore[arg-type]
    return f"{show([replace(spec, **{field: default})])} at {ranges(names)}"  # type: ignore[type-var]
