"""What runs jobs side by side, on this machine or on others: the contract of the files in `executors/`.

A job travels as its id. What came of it lies in the run's folder, and only what is verified there counts as done:
`ended` says that it is worth looking.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from tunescope.errors import UserError
from tunescope.system import plugins

FOLDER = "system.executors"
HERE = "local"


def check_workers(workers: int, least: int = 0) -> None:
    """UserError for fewer than the least; 0 are as many as there is room for, where that is looked for."""
    if workers < least:
        raise UserError(
            f"--workers {workers} is too small; give 1 or more, or on the command line 0, the default, for as many "
            "as there is room for."
        )


@dataclass(frozen=True)
class Needs:
    """What one job takes: cores, GPUs (a share of one as .25), and memory in GB (0: not said)."""

    cpus: int = 1
    gpus: float = 0.0
    memory: float = 0.0


@dataclass(frozen=True)
class Event:
    """What happened to a job. value: of `progress` what it tells, of `ended` what it returned, of `died` the reason."""

    job: str
    kind: Literal["started", "progress", "ended", "died"]
    value: Any = None


def _no_command(job: str) -> list[str]:
    raise NotImplementedError("this work is done in processes of this machine alone")


@dataclass(frozen=True)
class Work:
    """What the slots of an executor do, as functions that a module has by name.

    folder: of the run. start: called once in a new slot, with `given`. do: one job. preload: the module that processes
    here import first. payload: in this process, the job that an id stands for, as `do` takes it. command: what does one
    job in a process of its own, by its id.
    """

    folder: Path
    start: Callable[..., None]
    given: tuple[Any, ...]
    do: Callable[[Any], Any]
    preload: str
    payload: Callable[[str], Any] = str
    command: Callable[[str], list[str]] = _no_command


class Executor(ABC):
    """Slots that do jobs. Its fields are what is typed: `ray:address=auto` is Ray(address="auto").

    is_remote: jobs may run on other machines, so the run's folder is to be shared. waits: `poll` tells what happens;
    else jobs are handed to a queue, and a later process looks for what came of them.
    """

    is_remote: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    @abstractmethod
    def begin(self, work: Work, slots: int, needs: Needs) -> None:
        """Be ready for jobs of this work. slots: at most so many at once; 0 is as many as there is room for."""

    @abstractmethod
    def capacity(self) -> int:
        """How many jobs can run at once."""

    @abstractmethod
    def submit(self, jobs: Sequence[str]) -> None:
        """Run these jobs, each as soon as there is a slot."""

    @abstractmethod
    def poll(self) -> Iterator[Event]:
        """What has happened; waits for it, for less than a second. Raises UserError where a slot cannot be begun."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds; jobs that run are ended."""

    def with_needs(self, needs: Needs) -> Needs:
        """The needs of a job with those that were typed in their place."""
        return needs

    def queued(self, jobs: Sequence[str]) -> set[str]:
        """Of these jobs those that wait in the queue of another program, which has not begun them."""
        return set()


def executors() -> dict[str, type[Executor]]:
    """Every executor by its name."""
    return {name: plugins.only_class(plugins.load(FOLDER, name), Executor) for name in plugins.names(FOLDER)}  # type: ignore[type-abstract]
