"""Files that are whole or absent: write beside, sync, rename, sync the folder.

Everything a run writes goes through `write`, `copy`, `sync` and `rename` below, so a test can fail the n-th of them.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system import shell

BESIDE = re.compile(r"\.tmp-\d+-[0-9a-f]{8}$")  # how names that `beside` gives end
SAME_COMMAND = "type the same command again"
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # of a name that a folder is to have
FULL = (errno.ENOSPC, errno.EDQUOT)
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
# What is a fault of the program, of memory or of the network: no other disk would help.
NOT_DISK = (errno.EBADF, errno.EINTR, errno.EAGAIN, errno.ENOMEM)


class DiskError(UserError):
    """The disk fails; the whole run stops."""

    def __str__(self) -> str:
        return "".join(map(str, self.args))


class Damaged(UserError):  # noqa: N818
    """A file does not hold what tunescope wrote there."""


def write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def copy(old: Path, new: Path) -> None:
    shutil.copyfile(old, new)


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
    put(path, as_text(value).encode() + b"\n")


def finite(value: Any) -> Any:
    """The value with every number that JSON has no word for as None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value


def put_folder(made: Path, path: Path) -> None:
    """Move a finished folder to its name; its files are synced first, the parent last."""
    _sync_all(made)
    rename(made, path)
    sync(path.parent)


def put_first(made: Path, path: Path) -> None:
    """`put_folder` where another process may make the same folder: the first one's stays."""
    try:
        put_folder(made, path)
    except OSError as problem:
        if problem.errno not in TAKEN:
            raise
    finally:
        remove(made)


def replace_folder(made: Path, path: Path) -> None:
    """`put_folder` where a folder may have the name: it is put aside, and goes when the new one is in its place."""
    _sync_all(made)
    old = beside(path) if os.path.lexists(path) else None
    if old:
        rename(path, old)
    try:
        rename(made, path)
    except BaseException:
        if old:
            os.replace(old, path)
        raise
    sync(path.parent)
    if old:
        remove(old)


def _sync_all(folder: Path) -> None:
    for file in sorted(folder.rglob("*")):
        sync(file)
    sync(folder)


def make_folder(path: Path) -> None:
    """`path` is a folder, and those above it are, also after a power cut. UserError where a file has that name."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        why = "a link has that name, which leads to no folder" if path.is_symlink() else "a file has that name"
        raise UserError(f"{path} cannot be a folder: {why}. Name another: --out FOLDER") from None
    with suppress(PermissionError):  # a folder that may be passed through, and not listed
        sync(path.parent)


def beside(path: Path) -> Path:
    """A name next to `path` that no other process or thread writes to."""
    return path.with_name(f"{path.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which has the name `path` when all is in it; otherwise nothing is left.

    Raises UserError where somebody else took that name meanwhile.
    """
    make_folder(path.parent)
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
        if problem.errno not in TAKEN:
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


CONFIG = "config.json"  # of a run, what it asks for
BEGUN_AGAIN = "Type the command that began the run once more, with --out and the same folder."


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file that tunescope wrote; Damaged, by name, for a torn or foreign one."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        told = f"{path.parent} is not the folder of a run."
        if path.name == CONFIG and (path.parent / "status.json").exists():
            told = f"what the run asks for is lost. {BEGUN_AGAIN}"
        elif (path.parent / "status.json").exists():  # which a run has from its begin
            told = f"the run in {path.parent} is not finished. Type: tunescope resume {shell.path(path.parent)}"
        raise UserError(f"{path} does not exist: {told}") from None
    except NotADirectoryError:
        raise UserError(f"{path.parent} is a file, and not the folder of a run.") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror or problem}).") from problem
    except (ValueError, RecursionError) as problem:
        raise Damaged(f"{path} cannot be read ({problem}){_mended(path)}") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path} does not hold an object{_mended(path)}")
    return value


def _mended(path: Path) -> str:
    """Of what a run asks for nothing but the command that began it makes another."""
    return f": remove it. {BEGUN_AGAIN}" if path.name == CONFIG else "; remove it to have it made again."


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
    """What the disk refuses becomes one line that says how to go on; of several around one another the outermost."""
    try:
        yield
    except Exception as problem:
        reason = disk_problem(problem)
        if reason is None or (isinstance(problem, DiskError) and len(problem.args) == 1):  # which says how to go on
            raise
        begun = os.path.exists(os.path.join(run, CONFIG))  # without which there is nothing to resume
        how = go_on or (f"type: tunescope resume {shell.path(run)}" if begun else SAME_COMMAND)
        raise DiskError(
            reason, f" while writing to {run}; what was finished is kept. Mend that, then {how}"
        ) from problem


def disk_problem(problem: Exception) -> str | None:
    """What is wrong with the disk, in words; None for any other problem, such as one of the network."""
    if isinstance(problem, DiskError):
        return str(problem.args[0])
    number = _number(problem)
    if number is None:
        return None
    if number in FULL:
        return "the disk is full"
    if number in FORBIDDEN:
        return f"writing is not allowed ({os.strerror(number)})"
    name = getattr(problem, "filename", None)
    what = "a name is taken" if number in TAKEN else "the disk fails"
    return f"{what} ({os.strerror(number)}{f': {name}' if name else ''})"


def _number(problem: Exception) -> int | None:
    """The system's number of a disk's error. safetensors tells it in words, and subclasses elsewhere are networks'."""
    if isinstance(problem, OSError):
        is_plain = type(problem).__module__ == "builtins" and not isinstance(problem, ConnectionError | TimeoutError)
        number = problem.errno if is_plain else None
    else:
        told = re.search(r"\(os error (\d+)\)", str(problem)) if not isinstance(problem, UserError) else None
        number = int(told[1]) if told else errno.ENOSPC if "No space left on device" in str(problem) else None
    return None if number in NOT_DISK else number


def as_text(value: object) -> str:
    """JSON as it is written."""
    return _text(value, "\n")


def _text(value: object, line: str) -> str:
    """Objects a line a field, lists of numbers on one line: a thousand rows of statistics stay readable."""
    if isinstance(value, Mapping) and value:
        inner = line + " "
        fields = (f"{inner}{json.dumps(str(key))}: {_text(value[key], inner)}" for key in value)
        return "{" + ",".join(fields) + line + "}"
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        inner = line + " "
        return "[" + ",".join(inner + _text(one, inner) for one in value) + line + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
