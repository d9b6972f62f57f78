"""Arms, learning rates and seeds at one budget: from a model and a file to a verdict and a page."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tunescope import report
from tunescope.comparison import far_jobs, inside_attention, other_text
from tunescope.comparison.board import Board
from tunescope.comparison.looks import Clock, looked
from tunescope.comparison.pilot import piloted
from tunescope.comparison.place import Place
from tunescope.comparison.protocol import entered, keep_best, more, tried
from tunescope.comparison.standing import best_on_dev
from tunescope.errors import UserError
from tunescope.report import terminal
from tunescope.report.verdict.verdict import decide
from tunescope.system import files, job_folder, machine, run_folder, sealed_json
from tunescope.system.executor import HERE
from tunescope.system.lock import locked
from tunescope.system.say import say
from tunescope.tasks.make import USUAL, task_json
from tunescope.trial import executor_name
from tunescope.trial.as_read import as_read, check_folder
from tunescope.trial.bench import Bench
from tunescope.trial.identity import default_folder
from tunescope.trial.open import open_bench
from tunescope.trial.plan import AFTERWARDS, Plan, check, data_paths, from_json, text_path, to_json
from tunescope.trial.plan_fields import planned

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

    def table(self) -> str:
        return terminal.table(self.results)

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
    executor: str = HERE,
    quiet: bool = False,
    pilot: bool = False,
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
        executor: where they are: local, or ray or slurm with fields as in "ray:address=auto"; of these 0 workers are as
            many as there is room for. A queue, as Slurm's, is not waited for: `Submitted` says how to go on.
        pilot: only a tenth of the steps in all, at the first seed, to say what the rest would find and cost.
        quiet: nothing is printed.
        fields: instead of a plan, fields of `Plan` and `Settings`, or options of the command line: arms=["lora"],
            budget=20_000, seeds=3 (how many) or seeds=[1, 4] (which), learning_rates=[1e-3], steps=200, and so on;
            settings=Settings(...) is all of the training.

    Raises:
        UserError: something given cannot be used, or every arm was refused.
    """
    named = isinstance(model, str | Path)
    question = _question(str(model) if named else _name(model), data, plan, task, fields)
    question = piloted(question) if pilot else question
    if not named and (workers != 1 or executor != HERE):
        typed = f"workers={workers}" if workers != 1 else f"executor={executor!r}"
        raise UserError(f"compare({typed}) needs the model by name or folder: each process loads its own.")
    folder = Path(out) if out is not None else default_folder(check(question))
    given = None if task is None or isinstance(task, str) else task
    if not named and tokenizer is None:
        raise UserError("compare with a loaded model needs its tokenizer: compare(model, data, tokenizer=tokenizer).")
    opened = partial(open_bench, question, None if named else model, tokenizer, given)
    by_name = named and "kind" in question.task
    return run(question, folder, opened, by_name=by_name, workers=workers, executor=executor, quiet=quiet)


def _question(
    model: str,
    data: str | Path | Mapping[str, str | Path],
    plan: Plan | None,
    task: Any,
    fields: Mapping[str, Any],
) -> Plan:
    if plan is None:
        return planned(model, data, task_json(USUAL if task is None else task), fields)
    if fields:
        raise UserError(f"compare(plan=..., {next(iter(fields))}=...): give a plan or its fields, not both.")
    told, other = plan.task if task is None else task_json(task), text_path(plan.forgetting)
    return replace(plan, model=model, data=data_paths(data), task=told, forgetting=other)


def ask(question: Plan, folder: Path, *, workers: int = 1, executor: str = HERE, quiet: bool = False) -> Comparison:
    """`run` with all that it needs named by the plan."""
    opened = partial(open_bench, question)
    return run(question, folder, opened, by_name=True, workers=workers, executor=executor, quiet=quiet)


def resume(
    folder: str | Path,
    *,
    max_seeds: int | None = None,
    minutes: float | None = None,
    workers: int = 1,
    executor: str = "",
    quiet: bool = False,
) -> Comparison:
    """Go on with a run from its folder; of one that is finished only the page is made again.

    folder: of the run. max_seeds: instead of the run's own. minutes: for this time; the run's own were for the last.
    workers: processes. executor: as of `compare`; "" is the one of the last time. quiet: nothing is printed.

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
    before = executor or job_folder.executor_of(folder) or HERE
    return ask(question, folder, workers=workers, executor=before, quiet=quiet)


class Stopped(KeyboardInterrupt):
    """Ctrl-C while a comparison ran; the message says how to go on."""


def run(
    question: Plan,
    folder: Path,
    opened: Callable[[], Bench],
    *,
    by_name: bool,
    workers: int = 1,
    executor: str = HERE,
    quiet: bool = False,
) -> Comparison:
    """Everything between the question and the page, in a folder that this process holds alone.

    Raises Submitted where the executor has a queue that is not waited for.
    """
    check(question)
    place = _place(question, folder, executor, workers, by_name, quiet)
    clock = Clock(time.monotonic(), max(1, workers))
    with files.disk_errors_named(folder), locked(folder, say=_warn), machine.threads(question.threads):
        config = {"version": run_folder.VERSION, "by_name": by_name, **to_json(question)}
        run_folder.check_config(folder, config, UNASKED)
        bench = opened()
        other_text.windows(bench)  # a text that cannot be used is told before anything is trained
        entries = entered(bench)
        check_folder(bench, folder, read := as_read(bench))
        run_folder.write_config(folder, config | {"read": read}, UNASKED)
        try:
            if place.executor.waits:
                far_jobs.begin_anew(folder)
            standings = tried(bench, entries, place)
            best = best_on_dev(standings)
            results = looked(bench, entries, best, partial(more, place=place), clock)
        except KeyboardInterrupt:
            raise Stopped(f"stopped; resume with: tunescope resume {folder}") from None
        results["inside"] = inside_attention.pictures(bench, standings, folder)
        if best and not keep_best(folder, best):
            results["best"]["path"] = None
        finish(folder, results)
        far_jobs.begin_anew(folder)
        place.board.write("finished")
    return Comparison(folder, run_folder.read_results(folder))


def _place(question: Plan, folder: Path, executor: str, workers: int, by_name: bool, quiet: bool) -> Place:
    """Where the jobs run. Raises UserError for what does not go there."""
    found = executor_name.parse(executor)
    if workers < (0 if found.is_remote else 1):
        raise UserError(f"--workers {workers} is too small; give a whole number of 1 or more.")
    if found.is_remote and not by_name:
        raise UserError(f"--executor {executor} needs the model and the task by name: each process loads its own.")
    if found.is_remote and question.together != 1:
        raise UserError(
            f"--together {question.together} shares passes in a process of this machine, and --executor {executor} "
            "hands out one run at a time; leave one of them out."
        )
    return Place(folder, workers, found, Board(folder, executor, workers), quiet)


def finish(folder: Path, results: dict[str, Any]) -> None:
    """The verdict, results.json and the page."""
    results["verdict"] = decide(results)
    sealed_json.put(folder / "results.json", results)
    report.write(results, folder / "report.html")


def _name(model: Any) -> str:
    return str(getattr(model.config, "name_or_path", "") or model.config.model_type)


def _warn(line: str) -> None:
    say(line, sys.stderr)
