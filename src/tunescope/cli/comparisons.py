"""The verbs of a comparison: demo, compare, check, resume, report, index."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from tunescope.cli import side_by_side
from tunescope.cli.options import Many, PlanOptions, TaskOptions, question
from tunescope.cli.output import check_finished, print_run
from tunescope.errors import UserError
from tunescope.system import shell
from tunescope.system.executor import HERE
from tunescope.system.say import say


def demo(*, from_scratch: bool = False, out: str = "runs/demo") -> None:
    """Compare everything on a small model made for it: no download, a minute and a half on two idle cores.

    Args:
        from_scratch: train the small model anew instead of taking the one in the package.
        out: the folder for what is written.
    """
    from tunescope.lab.demo import run

    for found in run(Path(out), from_scratch=from_scratch):
        check_finished(found.folder, found.results)


def compare(
    model: str,
    data: str | None = None,
    /,
    *,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
    include_path: str | None = None,
    pilot: bool = False,
    report_to: Annotated[tuple[str, ...], Many] = (),
    out: str | None = None,
    workers: int = 0,
    executor: str = HERE,
) -> None:
    """Compare ways of adapting MODEL to DATA at one budget: a table, a verdict, a page, the best artifact.

    Args:
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        data: training rows: JSONL, CSV or TSV, plain or gzipped, or Parquet; or a public corpus, as e2e:FOLDER.
        include_path: a folder with tasks of your own for lm-evaluation-harness, whose code is run as the harness does.
        pilot: an eighth of the steps in all: what the rest would find, what it would cost, whether to run it.
        report_to: loggers that are told of every run and of the verdict, such as tensorboard (default: none).
        out: the folder of the run (default: one in runs/). A run begun there is gone on with.
        workers: processes, each with one thread (0: as cores and memory allow).
        executor: where these are: local, or other machines by ray:address=auto or slurm:partition=NAME.
    """
    asked = question(model, data, options, task, include_path)
    side_by_side.begun(model, asked.processes, workers, executor)
    from tunescope.comparison import comparison
    from tunescope.comparison.pilot import piloted
    from tunescope.trial import identity

    asked = piloted(asked) if pilot else asked
    folder = Path(out) if out else identity.default_folder(asked)
    at_once = side_by_side.at_once(model, asked.device, asked.processes, workers, executor, asked.device_map)
    with side_by_side.submitted_told():
        found = comparison.ask(asked, folder, workers=at_once, executor=executor, report_to=report_to)
        side_by_side.show(found)


def check(
    data: str | None = None,
    /,
    *,
    model: str,
    options: PlanOptions | None = None,
    task: TaskOptions | None = None,
    include_path: str | None = None,
) -> None:
    """Say what is in DATA and what a comparison would take, before anything is trained.

    Args:
        data: training rows: JSONL, CSV or TSV, plain or gzipped, or Parquet; or a public corpus, as e2e:FOLDER.
        model: a folder with a transformers model, or a name on the Hugging Face hub.
        include_path: a folder with tasks of your own for lm-evaluation-harness, whose code is run as the harness does.
    """
    from tunescope.cli import memory
    from tunescope.comparison.preview import lines
    from tunescope.models.load import config_of
    from tunescope.system import machine
    from tunescope.tasks.make import check_used
    from tunescope.trial.open import open_bench
    from tunescope.trial.provenance import facts_of

    asked = question(model, data, options, task, include_path)
    for line in memory.lines(asked, config_of(model)):
        say(line)
    with machine.threads(asked.threads):
        workers = side_by_side.at_once(model, asked.device, asked.processes, 0, HERE, asked.device_map)
        bench = open_bench(asked)
        check_used(bench.task)
        facts = facts_of(bench)
        longer = facts.parts["train"].inputs.p95
        for line in memory.lines(asked, config_of(model), min(longer, facts.positions or longer)):
            say(line)
        for line in lines(bench, workers):
            say(line)


def resume(
    run: str,
    /,
    *,
    max_seeds: int | None = None,
    minutes: float | None = None,
    processes: int | None = None,
    report_to: Annotated[tuple[str, ...], Many] = (),
    workers: int = 0,
    executor: str = "",
) -> None:
    """Go on with the comparison in the folder RUN.

    Args:
        max_seeds: while there is no verdict, add seeds to the two arms that decide, up to so many.
        minutes: add no seeds that would not be done so long after now.
        processes: that share the model (default: as many as the run had).
        report_to: loggers, which are told of what was finished before too (default: none).
        workers: processes, each with one thread (0: as cores and memory allow).
        executor: where these are (default: where they were).
    """
    from tunescope.system import job_folder, run_folder

    config = run_folder.read_config(Path(run))
    known, model = config.get("processes"), str(config.get("model"))
    device, device_map = str(config.get("device") or ""), str(config.get("device_map") or "")
    several = processes if processes is not None else known if isinstance(known, int) else 0
    executor = executor or job_folder.executor_of(Path(run)) or HERE
    side_by_side.begun(model, several, workers, executor)
    from tunescope.comparison import comparison

    with side_by_side.submitted_told():
        found = comparison.resume(
            run,
            max_seeds=max_seeds,
            minutes=minutes,
            processes=several,
            workers=side_by_side.at_once(model, device, several, workers, executor, device_map),
            executor=executor,
            report_to=report_to,
        )
        side_by_side.show(found)


def report(
    run: str,
    other: str | None = None,
    /,
    *,
    to: Literal["csv", "markdown", "latex", "bibtex"] | None = None,
    out: str | None = None,
) -> None:
    """Show the table of a finished RUN and write its page again; or compare it with a run OTHER.

    Args:
        other: a second run, of another model, data or version: what changed from RUN to it, as a table and a page.
        to: print the table as csv, markdown or latex, or bibtex of the methods used, and write nothing.
        out: the page of two runs (default: against-RUN.html in the folder of OTHER).
    """
    from tunescope.report import tabular
    from tunescope.system import run_folder

    if out is not None and other is None:
        raise UserError("--out is for the page of two runs; type: tunescope report RUN OTHER --out FILE.html")
    if to is not None and other is not None:
        raise UserError("--to is for one run: tunescope report RUN --to " + to)
    run_folder.check_is_comparison(Path(run))
    results = run_folder.read_results(Path(run))
    with _damage_named(Path(run)):
        if to is not None:
            from tunescope.comparison.citations import bibtex

            say((bibtex(results) if to == "bibtex" else tabular.FORMS[to](results)).rstrip("\n"), whole=True)
        elif other is not None:
            _two(Path(run), Path(other), results, out)
        else:
            _page(Path(run), results)


def _page(run: Path, results: dict[str, Any]) -> None:
    from tunescope import report as page

    try:  # written before a pipe can be closed, and told whatever the disk says
        with _unwritable(run / "report.html"):
            page.write(results, run / "report.html")
    finally:
        print_run(run, results)


def _two(run: Path, other: Path, results: dict[str, Any], out: str | None) -> None:
    from tunescope.report import terminal, two_runs
    from tunescope.system import run_folder

    run_folder.check_is_comparison(other)
    path = Path(out) if out else other / f"against-{run.resolve().name}.html"
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is no folder. Make it, or give a file in another: --out FILE")
    with _unwritable(path):
        two_runs.check_path(path)
    with _damage_named(other):
        found = two_runs.two_runs(results, run_folder.read_results(other), _names(run, other))
    with _unwritable(path):
        written = two_runs.write(found, path)
    for line in (terminal.printed(two_runs.table(found), whole=True), *two_runs.lines(found)):
        say(line)
    say(f"\npage: {written}")


def _names(run: Path, other: Path) -> tuple[str, str]:
    """Of two folders; with the folder around them where they are alike."""
    places = run.resolve(), other.resolve()
    alike = places[0].name == places[1].name
    first, second = (f"{one.parent.name} {one.name}" if alike else one.name for one in places)
    return first, second


def index(folder: str, /) -> None:
    """Write one page over all runs in FOLDER, index.html there, to sort and to search.

    Of arms that were run on all eight tasks of SuperGLUE it has the mean over them.

    Args:
        folder: where the runs lie, at any depth, such as runs.
    """
    from tunescope.report import index as runs

    place = Path(folder)
    with _unwritable(place / runs.NAME):
        written = runs.write(place)
    for line in runs.lines(runs.entries(place)):
        say(line)
    say(f"\npage: {written}")


@contextmanager
def _unwritable(path: Path) -> Iterator[None]:
    """An archive is for reading."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise UserError(f"{path} cannot be written ({problem.strerror or problem}); it is as it was.") from problem


@contextmanager
def _damage_named(run: Path) -> Iterator[None]:
    """Results that are no results."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        if isinstance(problem, UserError):
            raise
        damaged = f"{run / 'results.json'} does not hold what a comparison writes"
        raise UserError(
            f"{damaged} ({problem!r}): it is damaged; type: tunescope resume {shell.path(run)}"
        ) from problem
