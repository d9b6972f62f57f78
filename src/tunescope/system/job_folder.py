"""What is known of one job of a run, for those who did not begin it: RUN/jobs/ID/, on a disk that all of them share.

ask.json        what is to be done, for the worker: all else is in the run's config.json
outcome-*.json  what came of an ask where it left no result that lasts, such as out of memory
lease.json      who works on it now; death-* are leases and notices of those who went away without an outcome
progress.json   where it is; log.txt, all that its workers printed

RUN/jobs/run.json is what all workers are to find as it was: hashes of what was read, and the token of a shared folder.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunescope.errors import UserError
from tunescope.system import files, lease, passing_json, sealed_json, shell

DEATHS = 3  # make a failed job


@dataclass(frozen=True)
class JobFolder:
    """One job's folder."""

    run: Path
    name: str

    @property
    def path(self) -> Path:
        return self.run / "jobs" / self.name

    @property
    def lease(self) -> Path:
        return self.path / "lease.json"

    @property
    def queue_note(self) -> Path:
        """Where an executor notes what it has handed to a queue."""
        return self.path / "queued.json"

    @property
    def was_queued(self) -> bool:
        return self.queue_note.exists()

    @property
    def waits(self) -> bool:
        """Whether it is with a queue, as far as is told here: handed in, neither begun nor done."""
        if not self.was_queued or self.lease.exists():
            return False
        return not (self.path / "ask.json").exists() or self.outcome(self.asked()) is None

    def ask(self, value: Mapping[str, Any]) -> None:
        """Have this done; what came of it before is found again, and of another ask it is kept."""
        files.make_folder(self.path)
        sealed_json.put(self.path / "ask.json", value)

    def asked(self) -> dict[str, Any]:
        """Raises UserError where nothing is asked."""
        if not (self.path / "ask.json").exists():
            raise UserError(
                f"{self.run} has no job {self.name!r}; to see those it has, type: "
                f"tunescope status {shell.path(self.run)}"
            )
        return sealed_json.read(self.path / "ask.json")

    def put_outcome(self, asked: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        sealed_json.put(self._outcome(asked), outcome)

    def outcome(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """What came of that ask; None where nothing did, or it is damaged."""
        try:
            return sealed_json.read(self._outcome(asked)) if self._outcome(asked).exists() else None
        except files.Damaged:
            return None

    def _outcome(self, asked: Mapping[str, Any]) -> Path:
        return self.path / f"outcome-{sealed_json.digest(json.loads(files.as_text(asked)))[:12]}.json"

    def death(self) -> Path:
        """A new name for what tells of a worker that went away."""
        return self.path / f"death-{secrets.token_hex(4)}"

    def died(self) -> None:
        """A worker went away: its lease is put away, and where it had none yet that is noted."""
        files.make_folder(self.path)
        files.remove(self.queue_note)
        if not lease.put_away(self.lease, self.death()):  # whoever is slow, and not gone, finds it gone and ends
            self.death().touch()

    def deaths(self) -> int:
        return len(list(self.path.glob("death-*")))

    def put_progress(self, value: Mapping[str, Any]) -> None:
        passing_json.put(self.path / "progress.json", value)

    def progress(self) -> dict[str, Any] | None:
        try:
            return dict(json.loads((self.path / "progress.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def clear(self) -> None:
        """What came of it is done with: another go tries again what went wrong. The log stays."""
        for pattern in ("outcome-*", "death-*", "progress.json", "queued.json", "*.tmp-*"):
            for path in self.path.glob(pattern):
                files.remove(path)

    @contextmanager
    def log(self) -> Iterator[None]:
        """All that this process and its children print goes to the log."""
        files.make_folder(self.path)
        sys.stdout.flush()
        sys.stderr.flush()
        before = [os.dup(number) for number in (1, 2)]
        with open(self.path / "log.txt", "ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in zip((1, 2), before, strict=True):
                os.dup2(old, number)
                os.close(old)


def every(run: Path) -> list[JobFolder]:
    """The folders of all jobs of a run."""
    return [JobFolder(run, path.name) for path in sorted(run.glob("jobs/*")) if path.is_dir()]


def leased(run: Path) -> set[str]:
    """The jobs that somebody has a lease of, who may work on them now."""
    return {one.name for one in every(run) if one.lease.exists()}


def share(run: Path, known: Mapping[str, Any]) -> str:
    """Write what workers are to find, and return the token by which they see that they are in the same folder."""
    path = run / "jobs" / "run.json"
    token = str(shared(run).get("token") or "") if path.exists() else ""
    token = token or secrets.token_hex(8)
    files.make_folder(path.parent)
    sealed_json.put(path, {**known, "token": token})
    return token


def shared(run: Path, token: str = "") -> dict[str, Any]:
    """What `share` wrote. Raises UserError where the folder is not there, or is another of that name."""
    path = run / "jobs" / "run.json"
    found = sealed_json.read(path) if path.exists() else None
    if found is not None and token in ("", found["token"]):
        return found
    what = "is not there" if found is None else "is of another comparison"
    raise UserError(
        f"{run} on {socket.gethostname()} is not the folder that the comparison runs in: jobs/run.json {what}. Jobs on "
        "other machines need a folder on a disk that all of them share: tunescope compare ... --out /SHARED/FOLDER"
    )


def executor_of(run: Path) -> str:
    """What the jobs of a run were handed to before; "" where that was no other machine."""
    try:
        return str(shared(run)["executor"]) if (run / "jobs" / "run.json").exists() else ""
    except files.Damaged:
        return ""
