"""Where a comparison is: every arm's runs, its best score on dev, and the time that the whole has left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from tunescope.comparison.progress import duration
from tunescope.system import passing_json

FILE = "status.json"
EVERY = 2.0  # seconds


@dataclass
class Row:
    """An arm: runs that it is to have (those past an end of its rates are added as they come), and what is known.

    status: waiting, queued or refused; when all runs are over what became of the arm, as done or failed. done: id ->
    how it ended. paused: ids of those that paused on their way. now: id -> the run in words, and where it is. seconds:
    that runs took.
    """

    arm: str
    expected: int
    status: str = "waiting"
    best: float | None = None
    done: dict[str, str] = field(default_factory=dict)
    now: dict[str, dict[str, Any]] = field(default_factory=dict)
    paused: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def ended(self, name: str, outcome: Mapping[str, Any], *, is_new: bool = True) -> None:
        """A run ended; one that only paused goes on later."""
        now = self.now.pop(name, None)
        self.paused = [one for one in self.paused if one != name]
        if outcome["status"] == "paused":
            self.paused.append(name)
            return
        if name not in self.done and is_new:
            taken = now.get("taken") if now else None
            self.seconds += [taken or outcome["seconds"]] if outcome.get("seconds") is not None else []
        self.done[name] = outcome["status"]
        if outcome.get("dev") is not None:
            self.best = max(outcome["dev"], self.best if self.best is not None else outcome["dev"])

    @property
    def total(self) -> int:
        return max(self.expected, len(self.done) + len(self.now))


class Board:
    """The rows of a comparison, in status.json of its folder at most so often: `tunescope status` reads them there."""

    def __init__(self, folder: Path, executor: str, slots: int, clock: Callable[[], float] = time.monotonic):
        self.folder, self.executor, self.slots, self.clock = folder, executor, max(1, slots), clock
        self.rows: dict[str, Row] = {}
        self.jobs: dict[str, tuple[str, str]] = {}  # id -> arm and run
        self.began: dict[str, float] = {}
        self.written = -EVERY

    def expect(self, arm: str, runs: int | None) -> None:
        """The arm is to have so many runs in all; None: it is refused."""
        row = self.rows.setdefault(arm, Row(arm, 0))
        row.expected, row.status = runs or 0, row.status if runs is not None else "refused"

    def asked(self, name: str, arm: str, run: str) -> None:
        """A run that is to come, so that others can look for what came of it."""
        self.jobs[name] = (arm, run)

    def progress(self, name: str, arm: str, run: str, at: Mapping[str, Any]) -> None:
        taken = self.clock() - self.began.setdefault(name, self.clock())
        self.rows[arm].now[name] = {"run": run, **at, "taken": round(taken, 1)}
        self.write()

    def done(self, name: str, arm: str, outcome: Mapping[str, Any]) -> None:
        self.rows[arm].ended(name, outcome)
        self.write()

    def concluded(self, arm: str, status: str) -> None:
        """What became of the arm, when all its runs are over."""
        self.rows[arm].status = status

    def write(self, state: str = "") -> None:
        """state: running or finished, at once; "" is running, when it is time.

        A disk that does not take it stops nothing.
        """
        if state == "" and self.clock() - self.written < EVERY:
            return
        self.written = self.clock()
        rows = [asdict(row) for row in self.rows.values()]
        told = {
            "state": state or "running",
            "executor": self.executor,
            "slots": self.slots,
            "jobs": self.jobs,
            "arms": rows,
        }
        passing_json.put(self.folder / FILE, told)

    def whole(self) -> str:
        return whole(list(self.rows.values()), self.slots)


def seconds_left(rows: Sequence[Row], slots: int) -> float | None:
    """Of all runs that are known to come, by what those of the same arm took, or else those of all; None at first."""
    means = {row.arm: fmean(row.seconds) for row in rows if row.seconds}
    if not means:
        return None
    usual = fmean(means.values())
    work, longest = 0.0, 0.0
    for row in rows:
        each = means.get(row.arm, usual)
        running = [one.get("seconds_left", each) for one in row.now.values()]
        work += sum(running) + each * max(0, row.total - len(row.done) - len(row.now))
        longest = max([longest, *running])
    return max(work / max(1, slots), longest)


def whole(rows: Sequence[Row], slots: int) -> str:
    """The whole run in a line."""
    done, total = sum(len(row.done) for row in rows), sum(row.total for row in rows)
    left = seconds_left(rows, slots)
    begun = sum(len(row.paused) for row in rows)
    told = f"whole run: {done} of {total} runs done" + (f", {begun} more begun and waiting" if begun else "")
    if done == total:
        return told
    return told + ("" if left is None else f", about {duration(left)} left" + (f" on {slots} slots" * (slots > 1)))
