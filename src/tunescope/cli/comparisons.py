"""The verbs of a comparison: demo, compare, check, resume, report."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunescope.cli.options import PlanOptions, TaskOptions, question
from tunescope.cli.output import print_run
from tunescope.errors import UserError
from tunescope.system.executor import HERE
from tunescope.system.forkserver import begin
from tunescope.system.say import say

PRELOAD = "tunescope.comparison.preload"


def demo(*, from_scratch: bool = False, out: str = "runs/demo") -> None:
    """Compare everything on a small model made for it: no download, about four minutes.

    Args:
        from_scratch: train the small model anew instead of taking the one in the package.
        out: the folder for what is written.
    """
    from tunescope.lab.demo import run

    run(Path(out), from_scratch=from_scratch)


def compare(
    model: str,
    data: str,
    /,
    *,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
    pilot: bool = False,
    out: str | None = None,
    workers: int = 0,
    executor: str = HERE,
) -> None:
    """Compare ways of adapting MODEL to DATA at one budget: a table, a verdict, a page, the best artifact.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: training rows: JSONL, CSV or TSV, plain or gzipped; or a public corpus, as e2e:FOLDER.
        pilot: only a tenth of the steps in all: what the rest would find, what it would cost, whether to run it.
        out: the folder of the run (default: one in runs/). A run begun there is gone on with.
        workers: processes, each with one thread (0: as cores and memory allow).
        executor: where these are: local, or other machines by ray:address=auto or slurm:partition=NAME.
    """
    is_here = _is_here(executor)
    if is_here:
        begin(model, workers, PRELOAD)
    from tunescope.comparison import comparison
    from tunescope.comparison.pilot import piloted
    from tunescope.trial import identity

    asked = question(model, data, options, task)
    asked = piloted(asked) if pilot else asked
    folder = Path(out) if out else identity.default_folder(asked)
    at_once = workers or (_workers(model, asked.device) if is_here else 0)
    with submitted_told():
        found = comparison.ask(asked, folder, workers=at_once, executor=executor)
        print_run(found.folder, found.results)


def check(
    data: str,
    /,
    *,
    model: str,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
) -> None:
    """Say what is in DATA and what a comparison would take, before anything is trained.

    Args:
        data: training rows: JSONL, CSV or TSV, plain or gzipped; or a public corpus, as e2e:FOLDER.
        model: a folder with a transformers model, or a name on the Hugging Face hub.
    """
    from tunescope.comparison.preview import lines
    from tunescope.system import machine
    from tunescope.trial.open import open_bench

    asked = question(model, data, options, task)
    with machine.threads(asked.threads):
        for line in lines(open_bench(asked)):
            say(line)


def resume(
    run: str, /, *, max_seeds: int | None = None, minutes: float | None = None, workers: int = 0, executor: str = ""
) -> None:
    """Go on with the comparison in the folder RUN.

    Args:
        max_seeds: while there is no verdict, add seeds to the two arms that decide, up to so many.
        minutes: add no seeds that would not be done so long after now.
        workers: processes, each with one thread (0: as cores and memory allow).
        executor: where these are (default: where they were).
    """
    from tunescope.system import job_folder, run_folder

    config = run_folder.read_config(Path(run))
    executor = executor or job_folder.executor_of(Path(run)) or HERE
    is_here = _is_here(executor)
    if is_here:
        begin(str(config.get("model")), workers, PRELOAD)
    from tunescope.comparison import comparison

    at_once = workers or (_workers(str(config.get("model")), str(config.get("device"))) if is_here else 0)
    with submitted_told():
        found = comparison.resume(run, max_seeds=max_seeds, minutes=minutes, workers=at_once, executor=executor)
        print_run(found.folder, found.results)


def report(run: str, /) -> None:
    """Show the table of a finished RUN and write its page again."""
    from tunescope import report as page
    from tunescope.system import run_folder

    results = run_folder.read_results(Path(run))
    try:
        print_run(Path(run), results)
        page.write(results, Path(run) / "report.html")
    except UserError:
        raise
    except OSError as problem:  # an archive is for reading
        raise UserError(
            f"{run}/report.html cannot be written ({problem.strerror or problem}); it is as it was."
        ) from problem
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        damaged = f"{Path(run) / 'results.json'} does not hold what a comparison writes"
        raise UserError(f"{damaged} ({problem!r}): it is damaged; type: tunescope resume {run}") from problem


@contextmanager
def submitted_told() -> Iterator[None]:
    """That jobs are with a queue is no error: what to type next is told."""
    from tunescope.comparison.far_jobs import Submitted

    try:
        yield
    except Submitted as told:
        say(str(told))


def _is_here(executor: str) -> bool:
    """Whether it is processes of this machine."""
    if executor == HERE:
        return True
    from tunescope.trial.executor_name import parse

    return not parse(executor).is_remote


def _workers(model: str, device: str) -> int:
    from tunescope.system import machine

    return machine.default_workers(model, device)
