"""One process in a run folder at a time."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import SoftFileLock, Timeout

from tunescope.errors import UserError
from tunescope.system import files, process, shell

MARKER = "LOCK.marker"
EMPTY_FOR = 5.0  # seconds
PATIENCE = 0.3  # seconds: where a file system cannot exchange two names, a dead marker goes in one try of several


@contextmanager
def locked(folder: Path, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold `folder`/LOCK; raises UserError naming the process that holds it, or the file in its place.

    A new folder left empty goes again.
    The lock of a process that is gone from this host is taken over, with a line, and so is an empty one, which a kill
    left between making the file and writing it. Of another host nothing can be known, so that lock is left to a person.

    LOCK.marker is filelock's and decides; LOCK says who that is. The marker is a file that exists, not a lock of
    the kernel, for those may be missing or hold for one host alone on network file systems.
    """
    lock, is_new = folder / "LOCK", not folder.exists()
    files.make_folder(folder)
    marker = SoftFileLock(folder / MARKER, timeout=PATIENCE, poll_interval=PATIENCE / 6)
    _drop_empty(folder / MARKER)
    try:
        marker.acquire()
    except Timeout:
        raise UserError(_refusal(folder, _read(lock))) from None
    try:
        _take(folder, lock, say)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        marker.release()
        if is_new:
            with suppress(OSError):  # it stays unless it is empty
                folder.rmdir()


def _take(folder: Path, lock: Path, say: Callable[[str], None]) -> None:
    """Write who holds the lock; UserError where another is named there whom the marker cannot speak of."""
    if lock.exists() and lock.stat().st_size == 0:
        say(f"{folder} was left by a process that had not yet said which it is; taking over.")
    elif lock.exists():
        holder = _read(lock)
        if holder is None or holder.get("host") != socket.gethostname():
            raise UserError(_refusal(folder, holder))
        say(f"{folder} was left by process {holder['pid']}, which is gone; taking over.")
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    mine = {"pid": os.getpid(), "began": process.began(os.getpid()), "host": socket.gethostname(), "started": started}
    files.put_json(lock, mine)


def holder(folder: Path) -> dict[str, Any] | None:
    """Who holds the folder; None where nobody does, or a process of this host that is gone."""
    found = _read(folder / "LOCK")
    if found is None or found.get("host") != socket.gethostname():
        return found
    return found if process.runs(found["pid"], found.get("began")) else None


def _drop_empty(marker: Path) -> None:
    """Remove a marker that has been empty for long: who makes one writes its name there at once."""
    aside = files.beside(marker)
    try:
        found = marker.stat()
        if found.st_size or time.time() - found.st_mtime < EMPTY_FOR:
            return
        os.rename(marker, aside)
        if aside.stat().st_ino != found.st_ino:  # another process did the same, and has made its own since
            os.link(aside, marker)
    except OSError:
        return
    finally:
        files.remove(aside)


def _read(lock: Path) -> dict[str, Any] | None:
    try:
        holder = json.loads(lock.read_text())
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) and isinstance(holder.get("pid"), int) else None


def _refusal(folder: Path, holder: dict[str, Any] | None) -> str:
    if holder is None:
        return f"{folder} is in use; wait, or if no tunescope is running there type: rm {shell.path(folder)}/LOCK*"
    where = "this host" if holder.get("host") == socket.gethostname() else f"host {holder.get('host')}"
    return (
        f"{folder} is in use by process {holder['pid']} on {where}, started {holder.get('started')}; "
        f"wait, or if that process is gone type: rm {shell.path(folder)}/LOCK*"
    )
