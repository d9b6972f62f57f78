"""The artifact that an arm run leaves beside its numbers: its place, whether it is whole, and its copy in RUN/best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tunescope.attachment.artifact_folder import load
from tunescope.attachment.manifest import MANIFEST
from tunescope.errors import UserError
from tunescope.system import files, run_folder


def place(run: Path, name: str) -> Path:
    """Where the arm run of that id has it."""
    return run_folder.folder(run, name) / "artifact"


def kept(work: Path) -> dict[str, str | None]:
    """What a result says of it: the sha256 of its manifest, which has those of the tensors; None where it has none."""
    manifest = work / "artifact" / MANIFEST
    return {"artifact": files.sha256(manifest) if manifest.exists() else None}


def is_whole(saved: Path, result: Mapping[str, Any]) -> bool:
    """Whether it is the one that the result was written with; an older result does not say, so what is there counts.

    Raises OSError where the disk does not give it.
    """
    if not saved.exists():
        return result.get("artifact") is None
    try:
        load(saved, mapped=True)
        return "artifact" not in result or files.sha256(saved / MANIFEST) == result["artifact"]
    except UserError as problem:
        if isinstance(problem.__cause__, OSError) and files.disk_problem(problem.__cause__):
            raise problem.__cause__ from None
        return False


def damaged(folder: Path) -> Iterator[str]:
    """A line for each of a run that is damaged; one that is gone may be of an arm that lost."""
    for path in sorted((folder / "arms").glob("*/result.json")):
        result, saved = run_folder.kept(folder, path), place(folder, path.parent.name)
        if ".tmp-" in path.parent.name:
            continue
        if result is not None and saved.exists() and not is_whole(saved, result):
            yield f"note: {saved} is damaged. It is made again where it is needed."


def copy(source: Path, target: Path, again: str) -> None:
    """A whole copy of it at `target`, in the place of what is there, or else what is there.

    again: what has a damaged one made again. Raises UserError for that.
    """
    if _is_copy(target, source):
        return
    made = files.beside(target)
    try:
        made.mkdir()
        for file in sorted(source.iterdir()):
            files.copy(file, made / file.name)
        try:
            load(made, mapped=True)
        except UserError as problem:
            told = str(problem).replace(str(made), str(source))
            raise UserError(f"{told} {target} is left as it was; to have the arm made again, {again}") from None
        files.replace_folder(made, target)
    finally:
        files.remove(made)


def _is_copy(target: Path, source: Path) -> bool:
    """Whether it holds that artifact already, whole."""
    manifests = [one / MANIFEST for one in (source, target)]
    if not all(one.exists() for one in manifests) or manifests[0].read_bytes() != manifests[1].read_bytes():
        return False
    try:
        load(target, mapped=True)
    except UserError:
        return False
    return True
