"""A made-up job for executors, whose processes import no more for it than Python has: a digest of the job's name.

As a script, `made_jobs.py FOLDER JOB`, it does one.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

from tunescope.errors import UserError

_folder: Path | None = None


def start(folder: Path, refuses: str = "") -> None:
    """What a slot does first."""
    global _folder
    if refuses:
        raise UserError(refuses)
    _folder = folder


def do(job: str) -> str:
    """A job writes its digest; "dies-N" is killed its first N times, "meets-a" waits for "meets-b"."""
    assert _folder is not None
    with open(_folder / f"{job}.pids", "a") as file:
        file.write(f"{os.getpid()}\n")
    tries = len((_folder / f"{job}.pids").read_text().split())
    if job.startswith("dies") and tries <= int(job[-1]):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.startswith("meets"):
        other = _folder / f"{job[:-1]}{'ba'[job[-1] == 'b']}.pids"
        last = time.monotonic() + 30
        while not other.exists() and time.monotonic() < last:
            time.sleep(0.01)
        assert other.exists()
    (_folder / f"{job}.txt").write_text(digest(job))
    return digest(job)


def digest(job: str) -> str:
    return hashlib.sha256(job.encode()).hexdigest()


if __name__ == "__main__":
    start(Path(sys.argv[1]))
    do(sys.argv[2])
