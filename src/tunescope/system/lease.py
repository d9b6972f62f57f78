"""A lease: who works on something in a folder that several machines share, and whether that process still lives.

The holder writes a count, the beat, every few seconds. Whoever wants the lease looks whether the count moves, by a
clock of its own: clocks of two machines are never compared. A lease is taken by a link to a file that is whole, which
fails where there is one, and put away by a rename, of which of two processes one succeeds; so nobody removes another's.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from tunescope.system import files, process

BEAT = 2.0  # seconds
PATIENCE = 60.0  # without a beat: file systems on a network may show a change that late


@contextmanager
def held(path: Path, *, dead: Callable[[], Path], lost: Callable[[], None]) -> Iterator[bool]:
    """Whether this process has the lease at `path`; while it has, it beats.

    dead: where the lease of a holder that is gone is put. lost: called where another has put this one away, for it was
    taken to be gone: it must write nothing more.
    """
    while (found := holder(path)) is not None:
        if is_live(path):
            yield False
            return
        put_away(path, dead(), found)
    mine = {"token": secrets.token_hex(8), **_self(), "beat": 0}
    file = _taken(path, mine)
    if file is None:
        yield False
        return
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, file, mine, ended, lost), daemon=True)
    beating.start()
    try:
        yield True
    finally:
        ended.set()
        beating.join()
        aside = files.beside(path)
        if put_away(path, aside, mine):
            files.remove(aside)


def holder(path: Path) -> dict[str, Any] | None:
    """Who has the lease, with the beat; None where nobody has, {} where it cannot be read just now."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_live(path: Path) -> bool:
    """Whether the holder of a lease is there: see `live`."""
    return bool(live([path]))


def may_live(path: Path) -> bool:
    """Whether somebody has the lease who is not known to be gone, without a wait: of another machine's nothing is."""
    found = holder(path)
    is_here = found is not None and found.get("machine") == _machine()
    return found is not None and not (is_here and not process.runs(found["pid"], found.get("began")))


def live(paths: Sequence[Path], patience: float | None = None) -> set[Path]:
    """Those of the leases whose holders are there, all looked at together.

    A process of this machine is asked for; of another's its beat is waited for, so that this may take a minute.
    """
    first = {path: found for path in paths if (found := holder(path)) is not None}
    here = {path for path, one in first.items() if one.get("machine") == _machine()}
    alive = {path for path in here if process.runs(first[path]["pid"], first[path].get("began"))}
    left = set(first) - here
    last = time.monotonic() + (PATIENCE if patience is None else patience)
    while left and time.monotonic() < last:
        time.sleep(min(BEAT, 0.5))
        for path in sorted(left):
            now = holder(path)
            if now is None:
                left.discard(path)
            elif now and first[path] and now != first[path]:
                left.discard(path)
                alive.add(path)
            first[path] = first[path] or now or {}
    return alive


def put_away(path: Path, aside: Path, found: Mapping[str, Any] | None = None) -> bool:
    """Give the lease another name; False where another process did so first.

    found: the lease that is meant; another, which was taken meanwhile, is put back.
    """
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return False
    if found is None or (holder(aside) or {}).get("token") == found.get("token"):
        return True
    with suppress(FileExistsError):
        os.link(aside, path)
    files.remove(aside)
    return False


def _taken(path: Path, mine: dict[str, Any]) -> TextIO | None:
    """The lease's file, open, or None. Opened before it is the lease: behind that another may hold it for a moment."""
    made, file = files.beside(path), None
    try:
        made.write_text(_line(mine))
        file = open(made, "r+")  # noqa: SIM115 - `_beat` closes it
        os.link(made, path)
    except BaseException as problem:
        if file is not None:
            file.close()
        if isinstance(problem, FileExistsError):
            return None
        raise
    finally:
        files.remove(made)
    return file


def _beat(path: Path, file: TextIO, mine: dict[str, Any], ended: threading.Event, lost: Callable[[], None]) -> None:
    """The count goes on in the same file, which stays open, so that no other lease of that name is written to."""
    missing = 0
    with file:
        while not ended.wait(BEAT):
            found = holder(path)
            missing = missing + 1 if found is None else 0  # it may just be being put back
            if missing > 1 or (found and found.get("token") != mine["token"]):
                lost()
                return
            mine["beat"] += 1
            with suppress(OSError):
                file.seek(0)
                file.write(_line(mine))
                file.flush()
                os.fsync(file.fileno())


def _line(value: dict[str, Any]) -> str:
    """Always as long, so that a beat leaves nothing of the last."""
    return json.dumps({**value, "beat": f"{value['beat']:012d}"}) + "\n"


def _self() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "began": process.began(os.getpid()),
    }


@cache
def _machine() -> str:
    """One boot of one machine, and the processes that see one another there; a container has its own."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()
