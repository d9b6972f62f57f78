"""How a run is shown while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from tunescope.system.say import say, shown, visible

if TYPE_CHECKING:  # which is of training, and loads torch
    from tunescope.trial.train.loop import Progress

WHOLE_EVERY = 30.0  # seconds between lines on the whole run


class Display(Protocol):
    """What a comparison tells while it runs."""

    def say(self, line: str) -> None: ...

    def progress(self, arm: str, run: str, progress: Progress) -> None: ...

    def done(self, arm: str, run: str, outcome: dict[str, Any]) -> None: ...

    def whole(self, line: str) -> None: ...


@contextmanager
def display(arms: Sequence[str], out: TextIO | None = None, quiet: bool = False) -> Iterator[Display]:
    """The live table if `out` is a terminal, else lines, of one of several processes one a minute; `quiet`: nothing."""
    out = out or sys.stderr
    if quiet:
        yield Lines(None)
    elif multiprocessing.parent_process() is not None:
        yield Lines(out, every=60.0)
    elif out.isatty():
        from rich.console import Console
        from rich.live import Live

        table = LiveTable(arms)
        with Live(console=Console(file=out), get_renderable=table.render, refresh_per_second=4, transient=True):
            yield table
    else:
        yield Lines(out)


class Lines:
    """A line when a run ends, and one every `every` seconds of a long run."""

    def __init__(self, out: TextIO | None, every: float = 10.0):
        self.out, self.every = out, every
        self.last_whole = time.monotonic()
        self.shown: dict[tuple[str, str], float] = {}

    def say(self, line: str) -> None:
        if self.out is not None:
            say(line, self.out)

    def progress(self, arm: str, run: str, progress: Progress) -> None:
        now = time.monotonic()
        last = self.shown.setdefault((arm, run), now)
        if now - last >= self.every:
            self.shown[arm, run] = now
            self.say(f"{arm}  {run}  {running(progress)}")

    def done(self, arm: str, run: str, outcome: dict[str, Any]) -> None:
        self.say(f"{arm}  {run}  {ended(outcome)}")

    def whole(self, line: str) -> None:
        """The whole run, now and then."""
        if time.monotonic() - self.last_whole >= WHOLE_EVERY:
            self.last_whole = time.monotonic()
            self.say(line)


class LiveTable:
    """One row an arm: what it does now, and how many of its runs are done."""

    def __init__(self, arms: Sequence[str]):
        self.rows = {arm: ["", "", "waiting"] for arm in arms}
        self.finished = dict.fromkeys(arms, 0)
        self.lines: list[str] = []
        self.last = ""

    def say(self, line: str) -> None:
        self.lines = [*self.lines[-4:], line]

    def whole(self, line: str) -> None:
        self.last = line

    def progress(self, arm: str, run: str, progress: Progress) -> None:
        self.rows[arm] = [str(self.finished.get(arm, 0)), run, running(progress)]

    def done(self, arm: str, run: str, outcome: dict[str, Any]) -> None:
        self.finished[arm] = self.finished.get(arm, 0) + 1
        self.rows[arm] = [str(self.finished[arm]), run, ended(outcome)]

    def render(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for title in ("arm", "runs done", "run", ""):
            table.add_column(title)
        for arm, row in self.rows.items():
            table.add_row(*(Text(visible(cell)) for cell in (arm, *row)))
        return Group(*(Text(shown(line)) for line in self.lines), table, Text(shown(self.last)))


def running(progress: Progress) -> str:
    best = "-" if progress.best is None else f"{progress.best:.4g}"
    return (
        f"step {progress.step}/{progress.steps}  loss {progress.loss:.4g}  best {best}  "
        f"{duration(progress.seconds_left)} left"
    )


def ended(outcome: dict[str, Any]) -> str:
    if outcome["status"] != "done":
        return f"{outcome['status']}: {outcome['reason']}"
    test = f"  test {next(iter(outcome['test'].values())):.4g}" if outcome.get("test") else ""
    apart = f"; alone, since together: {outcome['apart']}" if outcome.get("apart") else ""
    dev = "" if outcome["dev"] is None else f"dev {outcome['dev']:.4g}"
    loss = f"loss {outcome['curve'][-1]['loss']:.4g}" if outcome["dev"] is None else ""
    return f"done  {dev}{loss}{test}  {outcome['steps']} steps in {duration(outcome['seconds'])}{apart}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def at_most_every(seconds: float, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """`report`, called for the first step, the last, and between them no more often than this."""
    last = 0.0

    def limited(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds or progress.step == progress.steps:
            last = now
            report(progress)

    return limited
