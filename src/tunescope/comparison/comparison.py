"""Arms, learning rates and seeds at one budget: from a model and a file to a verdict and a page."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tunescope import report
from tunescope.comparison import events, inside_attention, other_text
from tunescope.comparison.citations import bibtex
from tunescope.comparison.listeners import Running
from tunescope.comparison.logger import stream
from tunescope.comparison.looks import Clock, looked
from tunescope.comparison.pilot import piloted
from tunescope.comparison.protocol import entered, keep_best, more, tried
from tunescope.comparison.standing import best_on_dev
from tunescope.errors import UserError
from tunescope.report import notebook, tabular, terminal
from tunescope.report.verdict.verdict import decide
from tunescope.system import files, machine, plugins, ranks, run_folder, sealed_json
from tunescope.system.lock import locked
from tunescope.system.say import say
from tunescope.tasks.make import USUAL, task_json, with_fields
from tunescope.trial.as_read import as_read, check_folder
from tunescope.trial.bench import Bench
from tunescope.trial.identity import default_folder
from tunescope.trial.open import open_bench
from tunescope.trial.plan import AFTERWARDS, Plan, check, data_paths, from_json, text_path, to_json
from tunescope.trial.plan_fields import is_field, planned

BIBTEX = "bibtex"
UNASKED = (*AFTERWARDS, "read")  # of config.json: what is no part of the question


@dataclass(frozen=True)
class Comparison:
    """A finished run: its folder, and results.json as it lies there."""

    folder: Path
    results: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """The answer and its sentences."""
        return terminal.verdict(self.results)

    def table(self) -> list[dict[str, Any]]:
        """One dict an arm, best first; `tunescope.report.tabular.rows` says what is in it."""
        return tabular.rows(self.results)

    def to_pandas(self) -> Any:
        """`table` as a DataFrame, one row an arm.

        Raises UserError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UserError("to_pandas() needs pandas. Type: pip install pandas; or take run.table()") from None
        return pandas.DataFrame(tabular.columns(self.table()))

    def to(self, form: str) -> str:
        """The table as "csv", "markdown" or "latex", or "bibtex" of the methods used."""
        plugins.one_of("to", form, (*tabular.FORMS, BIBTEX))
        return bibtex(self.results) if form == BIBTEX else tabular.FORMS[form](self.results)

    def _repr_html_(self) -> str:
        return notebook.html(self.results, str(self.folder / "report.html"))

    def best(self) -> Any:
        """The best arm's artifacts, to give to `attach`."""
        from tunescope.attachment.artifact_folder import load

        if not (self.folder / "best").exists():
            raise UserError(f"{self.folder} has no artifact: its best arm is the model as it is.")
        return load(self.folder / "best")

    def __str__(self) -> str:
        return terminal.everything(self.results)


def compare(
    model: Any,
    data: str | Path | Mapping[str, str | Path],
    *,
    plan: Plan | None = None,
    task: Any = None,
    tokenizer: Any = None,
    out: str | Path | None = None,
    workers: int = 1,
    quiet: bool = False,
    pilot: bool = False,
    report_to: Sequence[str] = (),
    **fields: Any,
) -> Comparison:
    """Which way of adapting `model` to `data` is enough. A run already begun in `out` is gone on with.

    Args:
        model: a folder or hub id; or a loaded transformers model, with its tokenizer.
        data: a JSONL, CSV or TSV file, or {"train": ..., "dev": ..., "test": ...}.
        plan: all of the question but the model, the data and, if it is given here, the task.
        task: "classification" (the default), "generation", "reasoning", or a Task.
        tokenizer: of a loaded model.
        out: the run's folder; by default one in runs/, named by the question.
        workers: processes; more than one need the model by name.
        pilot: only a tenth of the steps in all, at the first seed, to say what the rest would find and cost.
        quiet: nothing is printed.
        report_to: loggers, such as ("tensorboard",): `tunescope compare --help` lists them.
        fields: instead of a plan, fields of `Plan` and `Settings`, or options of the command line: arms=["lora"],
            budget=20_000, seeds=3 (how many) or seeds=[1, 4] (which), learning_rates=[1e-3], steps=200, and so on;
            settings=Settings(...) is all of the training. Unless the task is a Task, its fields too: template="{text}
            It was", words={"neg": "bad", "pos": "great"}, text_field="review".

    Raises:
        UserError: something given cannot be used, or every arm was refused.
    """
    named = isinstance(model, str | Path)
    question = _question(str(model) if named else _name(model), data, plan, task, fields)
    question = piloted(question) if pilot else question
    if not named and workers != 1:
        raise UserError(f"compare(workers={workers}) needs the model by name or folder: each process loads its own.")
    folder = Path(out) if out is not None else default_folder(check(question))
    given = None if task is None or isinstance(task, str) else task
    if not named and tokenizer is None:
        raise UserError("compare with a loaded model needs its tokenizer: compare(model, data, tokenizer=tokenizer).")
    opened = partial(open_bench, question, None if named else model, tokenizer, given)
    by_name = named and "kind" in question.task
    return run(question, folder, opened, by_name=by_name, workers=workers, quiet=quiet, report_to=report_to)


def _question(
    model: str,
    data: str | Path | Mapping[str, str | Path],
    plan: Plan | None,
    task: Any,
    given: Mapping[str, Any],
) -> Plan:
    if plan is None:
        told, left = task_json(USUAL if task is None else task), given
        if task is None or isinstance(task, str):
            asked = {name: value for name, value in given.items() if not is_field(name)}
            told, unknown = with_fields(told, asked)
            left = {name: value for name, value in given.items() if name not in asked or name in unknown}
        return planned(model, data, told, left)
    if given:
        raise UserError(f"compare(plan=..., {next(iter(given))}=...): give a plan or its fields, not both.")
    asks, other = plan.task if task is None else task_json(task), text_path(plan.forgetting)
    return replace(plan, model=model, data=data_paths(data), task=asks, forgetting=other)


def ask(
    question: Plan, folder: Path, *, workers: int = 1, quiet: bool = False, report_to: Sequence[str] = ()
) -> Comparison:
    """`run` with all that it needs named by the plan."""
    opened = partial(open_bench, question)
    return run(question, folder, opened, by_name=True, workers=workers, quiet=quiet, report_to=report_to)


def resume(
    folder: str | Path,
    *,
    max_seeds: int | None = None,
    minutes: float | None = None,
    processes: int | None = None,
    workers: int = 1,
    quiet: bool = False,
    report_to: Sequence[str] = (),
) -> Comparison:
    """Go on with a run from its folder; of one that is finished only the page is made again.

    folder: of the run. max_seeds: instead of the run's own. minutes: for this time; the run's own were for the last.
    processes: that share the model, instead of the run's own. workers: processes that each have it. quiet: nothing is
    printed. report_to: loggers, which are told of what was finished before too.

    Raises UserError for a folder without a run, one of a newer version or in use, and for a run that was begun from
    Python with a loaded model or a task of its own, which `compare` goes on with.
    """
    folder = Path(folder)
    config = run_folder.read_config(folder)
    if not config.pop("by_name", True):
        raise UserError(
            f"{folder} was begun from Python with a loaded model or a task of its own; "
            f"to go on, call compare(..., out={str(folder)!r}) with the same arguments."
        )
    question = from_json(config, folder / "config.json")
    question = replace(question, minutes=minutes, max_seeds=question.max_seeds if max_seeds is None else max_seeds)
    question = question if processes is None else replace(question, processes=processes)
    return ask(question, folder, workers=workers, quiet=quiet, report_to=report_to)


class Stopped(KeyboardInterrupt):
    """Ctrl-C while a comparison ran; the message says how to go on."""


def run(
    question: Plan,
    folder: Path,
    opened: Callable[[], Bench],
    *,
    by_name: bool,
    workers: int = 1,
    quiet: bool = False,
    report_to: Sequence[str] = (),
) -> Comparison:
    """Everything between the question and the page, in a folder that this process holds alone."""
    check(question)
    if workers < 1:
        raise UserError(f"--workers {workers} is too small; give a whole number of 1 or more.")
    processes = ranks.count(question.processes)
    if processes > 1 and workers > 1:
        raise UserError(f"--workers {workers}: with several processes there is one worker, which all of them are.")
    check(replace(question, processes=processes))
    quiet = quiet or ranks.rank() > 0
    with ranks.joined(processes, question.device), files.disk_errors_named(folder), _held(folder, processes) as mine:
        listening = report_to if ranks.rank() == 0 else ()
        return _run(question, mine, opened, by_name, workers, quiet, listening)


@contextmanager
def _held(folder: Path, processes: int) -> Iterator[Path]:
    """The folder, locked; for the others of several processes a copy of what the first found in it."""
    if ranks.rank() == 0:
        with locked(folder, say=_warn):
            ranks.met(processes)
            ranks.met(processes)
            yield folder
        return
    ranks.met(processes)
    with ranks.own_folder(folder) as mine, locked(mine, say=_warn):
        ranks.met(processes)
        yield mine


def _run(
    question: Plan,
    folder: Path,
    opened: Callable[[], Bench],
    by_name: bool,
    workers: int,
    quiet: bool,
    report_to: Sequence[str],
) -> Comparison:
    clock = Clock(time.monotonic(), workers)
    with machine.threads(question.threads):
        config = {"version": run_folder.VERSION, "by_name": by_name, **to_json(question)}
        run_folder.check_config(folder, config, UNASKED)
        bench = opened()
        other_text.windows(bench)  # a text that cannot be used is told before anything is trained
        entries = entered(bench)
        check_folder(bench, folder, read := as_read(bench))
        run_folder.write_config(folder, config | {"read": read}, UNASKED)
        with stream(report_to, events.begun(folder, bench), _warn) as heard:
            running = Running(folder, workers, quiet, heard)
            try:
                standings = tried(bench, entries, running)
                best = best_on_dev(standings)
                results = looked(bench, entries, best, partial(more, running=running), clock)
            except KeyboardInterrupt:
                raise Stopped(f"stopped; resume with: tunescope resume {folder}") from None
            results["inside"] = inside_attention.pictures(bench, standings, folder)
            if best and not keep_best(folder, best):
                results["best"]["path"] = None
            finish(folder, results)
            heard.concluded(events.concluded(folder, results))
    return Comparison(folder, run_folder.read_results(folder))


def finish(folder: Path, results: dict[str, Any]) -> None:
    """The verdict, results.json and the page."""
    results["verdict"] = decide(results)
    sealed_json.put(folder / "results.json", results)
    report.write(results, folder / "report.html")


def _name(model: Any) -> str:
    return str(getattr(model.config, "name_or_path", "") or model.config.model_type)


def _warn(line: str) -> None:
    say(line, sys.stderr)
