"""Where the jobs of a comparison run, and all who are told how they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tunescope.comparison import events
from tunescope.comparison.board import Board
from tunescope.comparison.job import Job
from tunescope.comparison.logger import NOBODY, Stream
from tunescope.comparison.outcome import Outcome
from tunescope.comparison.progress import Display
from tunescope.comparison.workers import runner
from tunescope.system.executor import Executor
from tunescope.trial.bench import Bench
from tunescope.trial.train.loop import Progress

Run = Callable[[Sequence[Job], int], dict[str, Outcome]]  # jobs, and how many may share a pass


@dataclass(frozen=True)
class Execution:
    """Where a comparison runs. workers: jobs at once; of a cluster 0 is as many as it has room for."""

    folder: Path
    workers: int
    executor: Executor
    board: Board
    quiet: bool = False
    stream: Stream = NOBODY  # the loggers

    def in_folder(self, folder: Path) -> Execution:
        """The same in another folder."""
        return (
            self
            if folder == self.folder
            else replace(self, folder=folder, board=Board(folder, self.board.executor, self.workers))
        )

    def heard_by(self, stream: Stream) -> Execution:
        """The same with these loggers."""
        return replace(self, stream=stream)


@contextmanager
def at_work(
    bench: Bench, execution: Execution, shown: Display, expected: Callable[[], Mapping[str, int | None]]
) -> Iterator[Run]:
    """What runs jobs. expected: arm -> its runs in all, asked for before each round; None: it is refused."""
    board = execution.board

    def told(todo: Job, progress: Progress) -> None:
        shown.progress(todo.arm.arm.name, named(todo), progress)
        board.slots = max(1, slots.workers)
        execution.stream.step(events.Step(_run(todo), progress.step, progress.steps, progress.loss, progress.best))
        board.progress(todo.id, todo.arm.arm.name, named(todo), asdict(progress))
        shown.whole(board.whole())

    def ended(todo: Job, outcome: Outcome) -> None:
        shown.done(todo.arm.arm.name, named(todo), outcome)
        execution.stream.ended(events.ended(_run(todo), outcome))
        board.done(todo.id, todo.arm.arm.name, outcome)
        shown.whole(board.whole())

    with runner(bench, execution.folder, execution.workers, told, ended, execution.executor) as slots:

        def run(jobs: Sequence[Job], together: int) -> dict[str, Outcome]:
            for arm, runs in expected().items():
                board.expect(arm, runs)
            for todo in jobs:
                board.asked(todo.id, todo.arm.arm.name, named(todo))
            board.write("running")
            return slots.run(jobs, together)

        yield run


def _run(todo: Job) -> events.Place:
    return events.Place(todo.arm.arm.name, todo.rate, todo.seed, todo.test, tuple(todo.each_rate))


def named(todo: Job) -> str:
    return f"{events.told(todo.each_rate)}seed {todo.seed}" + (" test" if todo.test else "")
