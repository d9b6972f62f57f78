"""Files that lie elsewhere than when a run was begun: the hashes that it keeps say whether they are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tunescope.data.corpus_name import parsed, shown
from tunescope.data.read import sha256
from tunescope.errors import UserError
from tunescope.system import run_folder, shell
from tunescope.system.machine import default_device
from tunescope.trial.command import command
from tunescope.trial.input_hashes import SHOWN
from tunescope.trial.plan import Plan

PATHS = ("model", "data")  # of config.json


def other_paths(question: Plan, folder: Path) -> tuple[str, ...]:
    """The fields of the folder's config.json whose paths are others now, to files with the hashes that it keeps.

    A model's folder is among them unseen: `input_hashes.check_folder` is to look at it when it is open.

    Raises:
        UserError: a file of rows is no more what the run was begun with, or cannot be read.
    """
    kept = run_folder.read_config(folder) if (folder / "config.json").exists() else {}
    read, model = kept.get("read") or {}, str(kept.get("model"))
    found = ["model"] if model != question.model and Path(model).is_absolute() and "model.weights" in read else []
    for part, path in question.data.items():
        before, known = (kept.get("data") or {}).get(part, path), read.get(f"data.{part}")
        if before == path or known is None:
            continue
        if (now := sha256(path)) != known:
            raise UserError(
                f"{folder} holds another comparison (it differs in: data.{part}): {shown(path)} has the hash "
                f"{now[:SHOWN]}, and {shown(before)}, with which it was begun, had {known[:SHOWN]}. Name a new folder "
                "with --out, or give the same rows."
            )
        found.append(f"data.{part}")
    return tuple(found)


def check_there(question: Plan, folder: Path) -> None:
    """UserError where something that the run in the folder was begun with is gone, with what to type."""
    lost = list(_gone(question))
    if not lost:
        return
    asked = f"tunescope compare MODEL DATA --out {shell.path(folder)}, and all else as it was typed"
    if question.fit is None:
        typed, mark, unsaid = command(replace(_elsewhere(question), day=""), here=True).partition("  # in Python: ")
        more = [*_of_this_machine(question), "--out", shell.no_option(str(folder))]
        asked = f"{typed} {shell.join(more)}{mark}{unsaid}"
    raise UserError(
        f"{folder} was begun with {' and '.join(lost)}, which {'are' if len(lost) > 1 else 'is'} gone. If it was "
        f"moved, type the comparison again with the new path: {asked}"
    )


def _of_this_machine(question: Plan) -> list[str]:
    """Words that a command for others leaves out, and a folder's question does not."""
    device = [] if question.device == str(default_device()) else ["--device", question.device]
    return device + (["--together", str(question.together)] if question.together else [])


def _gone(question: Plan) -> Iterator[str]:
    """Paths that lead nowhere."""
    for path in (question.model, *question.data.values(), question.forgetting):
        place = _place(path)
        if place.is_absolute() and not place.exists():
            yield str(place)


def _place(path: str) -> Path:
    spec = parsed(path) if path else None
    return Path(path) if spec is None else spec.path


def _elsewhere(question: Plan) -> Plan:
    """The question with NEW in place of the folders of what is gone."""

    def new(path: str) -> str:
        place = _place(path)
        return path.replace(str(place.parent), "NEW", 1) if place.is_absolute() and not place.exists() else path

    data = {part: new(path) for part, path in question.data.items()}
    return replace(question, model=new(question.model), data=data, forgetting=new(question.forgetting))
