"""Who hears of runs while they go: the person at the terminal, and the loggers."""

from dataclasses import dataclass
from pathlib import Path

from tunescope.comparison.events import Place, Step, ended
from tunescope.comparison.job import Job
from tunescope.comparison.logger import Stream
from tunescope.comparison.progress import Display
from tunescope.comparison.run import Outcome
from tunescope.comparison.workers import OnDone, OnProgress
from tunescope.trial.train.loop import Progress


@dataclass(frozen=True)
class Running:
    """How a comparison's runs go: in which folder, in how many processes, and what listens to them."""

    folder: Path
    workers: int
    quiet: bool
    stream: Stream


def telling(shown: Display, stream: Stream) -> OnProgress:
    def told(todo: Job, progress: Progress) -> None:
        shown.progress(todo.arm.arm.name, _named(todo), progress)
        stream.step(Step(_place(todo), progress.step, progress.steps, progress.loss, progress.best))

    return told


def ending(shown: Display, stream: Stream) -> OnDone:
    def told(todo: Job, outcome: Outcome) -> None:
        shown.done(todo.arm.arm.name, _named(todo), outcome)
        stream.ended(ended(_place(todo), outcome))

    return told


def _place(todo: Job) -> Place:
    return Place(todo.arm.arm.name, todo.rate, todo.seed, todo.test)


def _named(todo: Job) -> str:
    rate = f"lr {todo.rate:g} " if todo.rate is not None else ""
    return f"{rate}seed {todo.seed}" + (" test" if todo.test else "")
