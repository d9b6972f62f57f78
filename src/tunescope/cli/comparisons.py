"""The verbs of a comparison: demo, compare, check, resume, report."""

import sys
from pathlib import Path
from typing import Any

from tunescope.cli.options import PlanOptions, TaskOptions, question
from tunescope.cli.output import print_run
from tunescope.errors import UserError
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
) -> None:
    """Compare ways of adapting MODEL to DATA at one budget: a table, a verdict, a page, the best artifact.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: training rows: JSONL, CSV or TSV, plain or gzipped; or a public corpus, as e2e:FOLDER.
        pilot: only a tenth of the steps in all: what the rest would find, what it would cost, whether to run it.
        out: the folder of the run (default: one in runs/). A run begun there is gone on with.
        workers: processes, each with one thread (0: as cores and memory allow).
    """
    asked = question(model, data, options, task)
    at_once = _side_by_side(asked.processes, workers, model)
    from tunescope.comparison import comparison
    from tunescope.comparison.pilot import piloted
    from tunescope.trial import identity

    asked = piloted(asked) if pilot else asked
    folder = Path(out) if out else identity.default_folder(asked)
    found = comparison.ask(asked, folder, workers=at_once or _workers(model))
    _print(found)


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
    from tunescope.cli import memory
    from tunescope.comparison.preview import lines
    from tunescope.models.load import config_of
    from tunescope.system import machine
    from tunescope.trial.open import open_bench

    asked = question(model, data, options, task)
    for line in memory.lines(asked, config_of(model)):
        say(line)
    with machine.threads(asked.threads):
        for line in lines(open_bench(asked)):
            say(line)


def resume(
    run: str,
    /,
    *,
    max_seeds: int | None = None,
    minutes: float | None = None,
    processes: int | None = None,
    workers: int = 0,
) -> None:
    """Go on with the comparison in the folder RUN.

    Args:
        max_seeds: while there is no verdict, add seeds to the two arms that decide, up to so many.
        minutes: add no seeds that would not be done so long after now.
        processes: that share the model (default: as many as the run had).
        workers: processes, each with one thread (0: as cores and memory allow).
    """
    from tunescope.system import run_folder

    config = run_folder.read_config(Path(run))
    processes = _whole(config.get("processes")) if processes is None else processes
    model = str(config.get("model"))
    at_once = _side_by_side(processes, workers, model)
    from tunescope.comparison import comparison

    several, at_once = processes, at_once or _workers(model)
    found = comparison.resume(run, max_seeds=max_seeds, minutes=minutes, processes=several, workers=at_once)
    _print(found)


def _side_by_side(asked: int, workers: int, model: str) -> int:
    """The workers to be had, 0 for as many as there is room for; where several processes are to be begun, it ends."""
    from tunescope.system import ranks

    processes = ranks.count(asked)
    if processes == 1:
        begin(model, workers, PRELOAD)
        return workers
    if not ranks.is_begun():
        sys.exit(ranks.begun(processes, ["-m", "tunescope", *sys.argv[1:]]))
    return workers or 1


def _print(found: Any) -> None:
    """Of several processes the first tells."""
    from tunescope.system import ranks

    if ranks.rank() == 0:
        print_run(found.folder, found.results)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


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


def _workers(model: str) -> int:
    from tunescope.system import machine

    return machine.default_workers(model)
