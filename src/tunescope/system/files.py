"""Files that are whole or absent: write beside, sync, rename, sync the folder.

Everything a run writes goes through `write`, `sync` and `rename` below, so a test can fail the n-th of them.
"""

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunescope.errors import UserError

SAME_COMMAND = "type the same command again"


class DiskError(UserError):
    """The disk takes nothing more; the whole run stops."""

    def __str__(self) -> str:
        return "".join(map(str, self.args))


def write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename(old: Path, new: Path) -> None:
    os.replace(old, new)


def put(path: Path, data: bytes) -> None:
    """`path` holds `data`, or what it held before, also after a power cut."""
    put_made(path, lambda beside: write(beside, data))


def put_made(path: Path, make: Callable[[Path], None]) -> None:
    """`path` is the file that `make` writes at the place it is handed, or what was there before."""
    made = beside(path)
    try:
        make(made)
        sync(made)
        rename(made, path)
    except BaseException:
        remove(made)
        raise
    sync(path.parent)


def put_json(path: Path, value: object) -> None:
    """Sorted keys and no NaN: the same value gives the same bytes, and any reader takes them."""
    put(path, _text(value, "\n").encode() + b"\n")


def finite(value: Any) -> Any:
    """The value with every number that JSON has no word for as None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value


def put_folder(beside: Path, path: Path) -> None:
    """Move a finished folder to its name; its files are synced first, the parent last."""
    for file in sorted(beside.rglob("*")):
        sync(file)
    sync(beside)
    rename(beside, path)
    sync(path.parent)


def beside(path: Path) -> Path:
    """A name next to `path` that no other process or thread writes to."""
    return path.with_name(f"{path.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which has the name `path` when all is in it; otherwise nothing is left.

    Raises UserError where somebody else took that name meanwhile.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    made = beside(path)
    made.mkdir()
    try:
        yield made
        _named(made, path)
    finally:
        remove(made)


def _named(made: Path, path: Path) -> None:
    try:
        put_folder(made, path)
    except OSError as problem:
        if problem.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise UserError(f"{path} was made by somebody else meanwhile, and is left as it is.") from problem


@contextmanager
def errors_told(out: str | Path) -> Iterator[None]:
    """What the disk refuses, and names that no disk has, become one line."""
    if "\0" in str(out):
        raise UserError(f"{str(out)!r} cannot be written: no name has such a character.")
    try:
        yield
    except OSError as problem:
        raise UserError(f"{out} cannot be written ({problem.strerror or problem}); nothing was kept.") from problem


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file that tunescope wrote; a torn or foreign file is refused by name."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: {path.parent} is not the folder of a run.") from None
    except (ValueError, OSError, RecursionError) as problem:
        raise UserError(f"{path} cannot be read ({problem}); remove it to have it made again.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} does not hold an object; remove it to have it made again.")
    return value


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def disk_errors_named(run: Path, go_on: str = "") -> Iterator[None]:
    """A full or forbidden disk becomes one line that says how to go on; of several around one another the outermost."""
    try:
        yield
    except Exception as problem:
        reason = _disk_problem(problem)
        if reason is None:
            raise
        how = go_on or f"type: tunescope resume {run}"
        raise DiskError(
            reason, f" while writing to {run}; what was finished is kept. Mend that, then {how}"
        ) from problem


def _disk_problem(problem: Exception) -> str | None:
    if isinstance(problem, DiskError):
        return str(problem.args[0])
    number = problem.errno if isinstance(problem, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(problem):
        return "the disk is full"
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"writing is not allowed ({os.strerror(number)})"
    return None


def _text(value: object, line: str) -> str:
    """Objects a line a field, lists of numbers on one line: a thousand rows of statistics stay readable."""
    if isinstance(value, Mapping) and value:
        inner = line + " "
        fields = (f"{inner}{json.dumps(str(key))}: {_text(value[key], inner)}" for key in sorted(value, key=str))
        return "{" + ",".join(fields) + line + "}"
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        inner = line + " "
        return "[" + ",".join(inner + _text(one, inner) for one in value) + line + "]"
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
