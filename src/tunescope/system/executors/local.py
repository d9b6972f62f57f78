"""Processes of this machine; with several GPUs each process has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from tunescope.system import forkserver
from tunescope.system.crew import Crew
from tunescope.system.executor import Event, Executor, Needs, Work

KINDS: dict[str, Literal["started", "ended", "died"]] = {"begun": "started", "done": "ended", "killed": "died"}


@dataclass
class Local(Executor):
    """Processes of this machine; with several GPUs each process has one."""

    is_remote: ClassVar[bool] = False

    def begin(self, work: Work, slots: int, needs: Needs) -> None:
        self.work = work
        self.crew = Crew(max(1, slots), forkserver.context(work.preload), work.start, work.given)

    def capacity(self) -> int:
        return self.crew.workers

    def submit(self, jobs: Sequence[str]) -> None:
        self.crew.submit(partial(_done, self.work.do), [(job, self.work.payload(job)) for job in jobs])

    def poll(self) -> Iterator[Event]:
        """As `Executor.poll`; of several jobs in one piece `progress` names the one that tells."""
        for kind, piece, value in self.crew.turn():
            if kind == "told":
                yield Event(value[0], "progress", value[1])
            else:
                yield Event(piece[0], KINDS[kind], value)

    def close(self) -> None:
        self.crew.close()


def _done(do: Callable[[Any], Any], piece: tuple[str, Any]) -> Any:
    return do(piece[1])
