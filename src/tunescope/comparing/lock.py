"""One process in a run folder at a time."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tunescope.errors import UserError


@contextmanager
def locked(folder: Path, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold `folder`/LOCK; raises UserError naming the process that holds it, or the file in its place.

    A new folder left empty goes again.
    The lock of a process that is gone from this host is taken over, with a line. Of another host nothing can
    be known, so that lock is left to a person.
    """
    lock, is_new = folder / "LOCK", not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder} cannot be a folder: a file has that name. Name another: --out FOLDER") from None
    if not _create(lock):
        holder = _read(lock)
        if holder is None or not _is_gone(holder):
            raise UserError(_refusal(folder, lock, holder))
        say(f"{folder} was left by process {holder['pid']}, which is gone; taking over.")
        _discard(lock, holder)
        if not _create(lock):
            raise UserError(_refusal(folder, lock, _read(lock)))
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # it stays unless it is empty
                folder.rmdir()


def _create(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": started,
        "birth": _birth(os.getpid()),
    }
    with os.fdopen(handle, "w") as file:
        json.dump(owner, file)
    return True


def _read(lock: Path) -> dict[str, Any] | None:
    try:
        holder = json.loads(lock.read_text())
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) and isinstance(holder.get("pid"), int) else None


def _is_gone(holder: dict[str, Any]) -> bool:
    if holder.get("host") != socket.gethostname():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _birth(holder["pid"]) != holder.get("birth")  # the number was given to another process


def _birth(pid: int) -> str | None:
    """When process `pid` was started, in clock ticks since boot; None where /proc is missing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _discard(lock: Path, holder: dict[str, Any]) -> None:
    """Move the stale lock away; if another process was quicker and it is hers by now, put it back."""
    aside = lock.with_name(f"LOCK.stale-{os.getpid()}")
    try:
        os.rename(lock, aside)
    except FileNotFoundError:
        return
    if _read(aside) != holder:
        os.link(aside, lock)
    aside.unlink(missing_ok=True)


def _refusal(folder: Path, lock: Path, holder: dict[str, Any] | None) -> str:
    if holder is None:
        return f"{folder} is in use; wait, or if no tunescope is running there type: rm {lock}"
    where = "this host" if holder.get("host") == socket.gethostname() else f"host {holder.get('host')}"
    return (
        f"{folder} is in use by process {holder['pid']} on {where}, started {holder.get('started')}; "
        f"wait, or if that process is gone type: rm {lock}"
    )
