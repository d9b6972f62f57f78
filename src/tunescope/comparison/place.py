"""Where the jobs of a comparison run, and all who are told how they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tunescope.comparison.board import Board
from tunescope.comparison.job import Job
from tunescope.comparison.progress import Display
from tunescope.comparison.run import Outcome
from tunescope.comparison.workers import runner
from tunescope.system.executor import Executor
from tunescope.trial.bench import Bench
from tunescope.trial.train.loop import Progress

Run = Callable[[Sequence[Job], int], dict[str, Outcome]]  # jobs, and how many may share a pass


@dataclass(frozen=True)
class Place:
    """Where a comparison runs. workers: jobs at once; of a cluster 0 is as many as it has room for."""

    folder: Path
    workers: int
    executor: Executor
    board: Board
    quiet: bool = False


@contextmanager
def at_work(
    bench: Bench, place: Place, shown: Display, expected: Callable[[], Mapping[str, int | None]]
) -> Iterator[Run]:
    """What runs jobs. expected: arm -> its runs in all, asked for before each round; None: it is refused."""
    board = place.board

    def told(todo: Job, progress: Progress) -> None:
        shown.progress(todo.arm.arm.name, named(todo), progress)
        board.slots = max(1, slots.workers)
        board.progress(todo.id, todo.arm.arm.name, named(todo), asdict(progress))
        shown.whole(board.whole())

    def ended(todo: Job, outcome: Outcome) -> None:
        shown.done(todo.arm.arm.name, named(todo), outcome)
        board.done(todo.id, todo.arm.arm.name, outcome)
        shown.whole(board.whole())

    with runner(bench, place.folder, place.workers, told, ended, place.executor) as slots:

        def run(jobs: Sequence[Job], together: int) -> dict[str, Outcome]:
            for arm, runs in expected().items():
                board.expect(arm, runs)
            for todo in jobs:
                board.asked(todo.id, todo.arm.arm.name, named(todo))
            board.write("running")
            return slots.run(jobs, together)

        yield run


def named(todo: Job) -> str:
    rate = f"lr {todo.rate:g} " if todo.rate is not None else ""
    return f"{rate}seed {todo.seed}" + (" test" if todo.test else "")
