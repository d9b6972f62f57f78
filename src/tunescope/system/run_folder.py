"""The folder of a run: one folder an arm run, whole or absent, its name the hash of all that its numbers depend on.

RUN/config.json   the question, enough to go on from
RUN/arms/ID/      result.json, the artifact, and test.json once the arm was chosen
RUN/arms/ID.tmp-*-PID/ half done; a later process goes on from its state
RUN/results.json, RUN/report.html, RUN/best/

What is read back holds its digest (`sealed_json`). A folder of version 1 was begun before there were any.
"""

import json
import os
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system import files, lock, sealed_json, shell

VERSION = 2
SEALED = 2  # the first version whose files have digests


def identity(depends_on: Mapping[str, Any]) -> str:
    """16 hex digits over canonical JSON: equal for equal dependencies, on any machine."""
    text = json.dumps(depends_on, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def folder(run: Path, name: str) -> Path:
    return run / "arms" / name


def finished(run: Path, name: str, what: str = "result.json") -> dict[str, Any] | None:
    """What an arm run wrote when it was done; None where it is not there or is damaged, so that it is done again."""
    return kept(run, folder(run, name) / what)


def kept(run: Path, path: Path) -> dict[str, Any] | None:
    """What lies in a file of the run; None where it is not there or is damaged."""
    if not path.exists():
        return None
    try:
        return sealed_json.read(path, may_lack=is_unsealed(run))
    except files.Damaged:
        return None


def drop_damaged(run: Path, say: Callable[[str], None], kept_as: str = "arms/*/*.json") -> None:
    """Remove what was kept of arm runs, or of searches, and is damaged, with a line each: it is made again."""
    may_lack = is_unsealed(run)
    for path in sorted(run.glob(kept_as)):
        if ".tmp-" in path.parent.name:
            continue
        try:
            sealed_json.read(path, may_lack=may_lack)
        except files.Damaged as problem:
            files.remove(path)
            say(f"note: {problem} It is made again.")


def is_unsealed(run: Path) -> bool:
    """Whether the run was begun by a version whose files have no digests."""
    path = run / "config.json"
    version = files.read_json(path).get("version") if path.exists() else VERSION
    return isinstance(version, int) and version < SEALED


def working(run: Path, name: str) -> Path:
    """A folder for this process to work in; a state that an earlier process left there is taken over.

    Only the holder of the run's lock and its workers call this, and of workers on other machines who has the job's
    lease, so nobody else is writing in there. Who only seemed to be gone finds the folder away, and fails.
    """
    mine = folder(run, f"{name}.tmp-{_mark(os.getpid())}-{os.getpid()}")
    files.make_folder(mine.parent)
    for left in sorted(mine.parent.glob(f"{name}.tmp-*")):
        if (left / "state.json").exists() and not mine.exists():
            os.replace(left, mine)
        elif left != mine:
            files.remove(left)
    mine.mkdir(exist_ok=True)
    return mine


def leave(work: Path) -> None:
    """The folder goes where nothing is in it that could be gone on with, for what was begun there did not go well."""
    if not (work / "state.json").exists():
        files.remove(work)


@cache
def _mark(pid: int) -> str:
    """Tells this process from one of another machine that has the same number."""
    return secrets.token_hex(4)


def finish(work: Path, run: Path, name: str, result: Mapping[str, Any]) -> None:
    """Write the result last, drop the training state, and give the folder its name; a damaged one there goes.

    Raises files.DiskError where the run's folder was removed.
    """
    check_stands(run)
    sealed_json.put(work / "result.json", result)
    for state in work.glob("state*"):
        files.remove(state)
    files.replace_folder(work, folder(run, name))


def sweep(run: Path, at_work: Collection[str] = ()) -> None:
    """Remove what dead processes left half written.

    at_work: runs that other machines may be writing to, which are left alone.
    """
    torn = ("*.tmp-*", "arms/*/*.tmp-*", "units/*.tmp-*", "seeds/*.tmp-*", "prompts/*.tmp-*")
    for left in [one for pattern in torn for one in run.glob(pattern)]:
        if left.parent.name.partition(".")[0] not in at_work:
            files.remove(left)


def sweep_half_done(run: Path, wanted: Collection[str]) -> None:
    """Remove the runs that were left half done and are not `wanted`."""
    for left in run.glob("arms/*.tmp-*"):
        if left.name.partition(".")[0] not in wanted:
            files.remove(left)


def read_results(run: Path) -> dict[str, Any]:
    """results.json of a run, verified; UserError for one that is damaged, or of a newer tunescope."""
    path = run / "results.json"
    version = files.read_json(path).get("version")
    if not isinstance(version, int):
        raise files.Damaged(f"{path} is damaged: it has no version. {_made_again(run)}")
    if version > VERSION:
        raise UserError(
            f"{path} has version {version}, and this tunescope reads up to {VERSION}; "
            "type: pip install --upgrade tunescope"
        )
    try:
        return sealed_json.read(path, may_lack=version < SEALED)
    except files.Damaged as problem:
        raise files.Damaged(f"{problem} {_made_again(run)}") from None


def _made_again(run: Path) -> str:
    return f"To have it made again from the arms, type: tunescope resume {shell.path(run)}"


def check_is_comparison(run: Path) -> None:
    """UserError for the folder of a recipe or of a search, which other commands are of; what is no run passes."""
    try:
        config = read_config(run)
    except UserError:
        return
    if kind := _kind(config):
        page = run / "report.html"
        told = f"its page is {page}" if page.exists() else "it is not finished"
        if not (kind == "search" and page.exists()):  # a recipe's page may be of the pieces that were done by then
            told += f". To go on with it type that command again, with --out {shell.path(run)}"
        if holder := lock.holder(run):
            told = f"process {holder['pid']} on {holder['host']} holds it. Of what is done, {told}"
        raise UserError(f"{run} is of `tunescope {kind if kind == 'search' else f'reproduce {kind}'}`: {told}.")


def _kind(config: Mapping[str, Any]) -> str:
    """What no comparison is called: a search, or the name of a recipe."""
    return "search" if "searches" in config else str(config.get("recipe", ""))


WRITTEN = {
    *("arms", "best", "jobs", "prompts", "seeds", "slurm", "units"),
    *("report.html", "result.json", "results.json", "status.json"),
}  # in a run's folder, beside its config.json
PIECES = ("arms", "seeds", "units")  # of a comparison, a search and a recipe
TORN = ("LOCK", "config.json.tmp-")  # left by a process that was killed before it had one


def check_own(run: Path, kind: str, pieces: str, besides: tuple[str, ...] = ()) -> None:
    """UserError where something stands under a name of a run's own and no question: it is another's, and stays.

    pieces: the folder of what such a run has done; where that holds any, the run's question was lost. besides: such
    names that do not matter.
    """
    names = {path.name for path in run.iterdir()} - set(besides)
    others = [run / name for name in names if name in WRITTEN or (".tmp-" in name and not name.startswith(TORN))]
    if others and not (run / "config.json").exists() and not _has_pieces(run, pieces):
        raise UserError(
            f"{run} holds something that is no {kind} ({min(path.name for path in others)}). "
            "Name a new folder with --out."
        )


def check_stands(run: Path) -> None:
    """DiskError where the folder was removed since the run began: in its place another would hold half of it."""
    if not (run / "config.json").exists():
        raise files.DiskError(f"{run} was removed while the run was at work. To begin anew, {files.SAME_COMMAND}.")


def _has_pieces(run: Path, own: str) -> bool:
    """Whether something of ours lies in that folder, and no piece of another kind of run beside it."""
    if any((run / name).exists() for name in PIECES if name != own):
        return False
    return any(map(_is_sealed, (run / own).rglob("*.json")))


def _is_sealed(path: Path) -> bool:
    try:
        return bool(sealed_json.read(path))
    except UserError:
        return False


def check_config(run: Path, config: Mapping[str, Any], free: Collection[str] = ()) -> None:
    """Refuse a folder that holds another question, with the fields that differ; those of `free` may."""
    if not (run / "config.json").exists():
        return
    old, new = read_config(run), json.loads(json.dumps(config))
    keys = [key for key in _differing(old, new) if key not in (*free, "version")]
    if keys:
        raise UserError(
            f"{run} holds another {_kind(old) or 'comparison'} (it differs in: {', '.join(keys)}); "
            "name a new folder with --out, or ask what was asked first."
        )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ; of a mapping in both, its own keys behind a dot.

    An option that an older version did not have is no difference while it asks for nothing.
    """
    found = []
    asked = [key for key in old.keys() | new.keys() if key in old or new[key]]
    for key in sorted(key for key in asked if old.get(key) != new.get(key)):
        inner = [one for one in (old.get(key), new.get(key)) if isinstance(one, dict)]
        found += [f"{key}.{name}" for name in _differing(*inner)] if len(inner) == 2 else [key]
    return found


def write_config(run: Path, config: Mapping[str, Any], free: Collection[str] = ()) -> None:
    """Keep the question, so that `resume` needs only the folder; anew where what is `free` to change has changed."""
    old = read_config(run) if (run / "config.json").exists() else None
    differing = _differing(old, json.loads(json.dumps(config))) if old else []
    if old is None or any(key in free or key.partition(".")[0] in free for key in differing):
        files.put_json(run / "config.json", {**config, "version": old["version"]} if old else config)


def read_config(run: Path) -> dict[str, Any]:
    """The question of a run; one of a newer tunescope is refused."""
    config = files.read_json(run / "config.json")
    version = config.get("version")
    if not isinstance(version, int):
        raise UserError(f"{run} is not the folder of a run: its config.json is of something else.")
    if not 1 <= version <= VERSION:
        raise UserError(
            f"{run / 'config.json'} has version {version}, and this tunescope reads up to {VERSION}; "
            "type: pip install --upgrade tunescope"
        )
    return config
