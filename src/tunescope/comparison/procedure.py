"""Everything between the question and the page of a comparison, in a folder that is held."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tunescope import report
from tunescope.comparison import events, inside_attention, other_text, time_limit
from tunescope.comparison.board import Board
from tunescope.comparison.conclusion import keep_best
from tunescope.comparison.entry import AllRefused, Entry, entered
from tunescope.comparison.estimate import check_entries
from tunescope.comparison.execution import Execution
from tunescope.comparison.interim_looks import looked
from tunescope.comparison.logger import stream
from tunescope.comparison.protocol import more, tried
from tunescope.comparison.standing import best_on_dev
from tunescope.errors import UserError
from tunescope.report.verdict.verdict import decide
from tunescope.system import far_jobs, machine, ranks, run_folder, sealed_json, shell
from tunescope.system.executor import check_workers
from tunescope.system.lock import locked
from tunescope.system.say import say
from tunescope.tasks.make import check_used
from tunescope.trial import begun_with, executor_name, moved_files
from tunescope.trial.bench import Bench
from tunescope.trial.chat_day import on_its_day
from tunescope.trial.input_hashes import check_folder, input_hashes
from tunescope.trial.plan import AFTERWARDS, Plan
from tunescope.trial.plan_json import to_json

UNASKED = (
    *AFTERWARDS,
    "pilot_of.max_seeds",
    "read",
    "versions",
    "chosen_precision",
)  # of config.json: what is no part of the question


class Stopped(KeyboardInterrupt):
    """Ctrl-C while a comparison ran; the message says how to go on."""


def checked(question: Plan, folder: Path, executor: str, workers: int, by_name: bool, quiet: bool) -> Execution:
    """Where the jobs run. Raises UserError for what does not go there."""
    found = executor_name.parse(executor)
    check_workers(workers, 0 if found.is_remote else 1)
    processes = ranks.count(question.processes)
    if processes > 1 and (workers > 1 or found.is_remote):
        asked = f"--executor {executor}" if found.is_remote else f"--workers {workers}"
        raise UserError(f"{asked}: with several processes there is one worker, which all of them are.")
    if found.is_remote and not by_name:
        raise UserError(f"--executor {executor} needs the model and the task by name: each process loads its own.")
    if found.is_remote and question.together != 1:
        raise UserError(
            f"--together {question.together} shares passes in a process of this machine, and --executor {executor} "
            "hands out one run at a time; leave one of them out."
        )
    return Execution(folder, workers, found, Board(folder, executor, workers), quiet or ranks.rank() > 0)


def _with_its_seeds(question: Plan, folder: Path) -> Plan:
    """The question with the most seeds that the folder was given since, where it names none: what was added stays."""
    if question.max_seeds is not None or question.pilot_of is not None or not (folder / "config.json").exists():
        return question
    known = run_folder.read_config(folder).get("max_seeds")
    return replace(question, max_seeds=known) if isinstance(known, int) and known > len(question.seeds) else question


@contextmanager
def held(folder: Path, processes: int) -> Iterator[Path]:
    """The folder, locked; for the others of several processes a copy of what the first found in it."""
    if ranks.rank() == 0:
        with locked(folder, say=_warn):
            ranks.swept(folder)
            ranks.met(processes)
            ranks.met(processes)
            yield folder
        return
    ranks.met(processes)
    with ranks.own_folder(folder) as mine, locked(mine, say=_warn):
        ranks.met(processes)
        yield mine


def carried_out(
    question: Plan, execution: Execution, opened: Callable[[Plan], Bench], by_name: bool, report_to: Sequence[str]
) -> None:
    """All runs of the question, its verdict, results.json and the page.

    A comparison that is begun with minutes is cut to fit them; one that is gone on with is what it was cut to.

    Raises Submitted where the executor has a queue that is not waited for.
    """
    folder, start = execution.folder, time.monotonic()
    run_folder.check_own(folder, "comparison", "arms")
    question, fits = time_limit.before(on_its_day(_with_its_seeds(question, folder), folder), folder)
    with machine.threads(question.threads):
        run_folder.check_config(
            folder, _config(question, by_name), (*UNASKED, *moved_files.other_paths(question, folder))
        )
        time_limit.say_uncut(question, folder, fits, execution.quiet)
        bench = _opened(question, execution, opened)
        deadline, clock = time_limit.with_deadline(bench, execution, start, fits)
        entries = entered(bench)
        check_folder(bench, folder, read := input_hashes(bench))
        kept = _config(bench.plan, by_name) | {"read": read, "versions": begun_with.versions(folder)}
        run_folder.write_config(folder, kept, (*UNASKED, *moved_files.PATHS))
        with stream(report_to, events.begun(folder, bench), _warn) as heard:
            execution = execution.heard_by(heard)
            try:
                if execution.executor.waits:
                    far_jobs.begin_anew(folder)
                standings, together = tried(bench, entries, execution, deadline)
                results = looked(bench, entries, partial(more, execution=execution, together=together), clock)
            except AllRefused:
                _over(execution, entries)
                raise
            except KeyboardInterrupt:
                raise Stopped(f"stopped; resume with: tunescope resume {shell.path(folder)}") from None
            results["inside"] = inside_attention.pictures(bench, entries, folder)
            best = best_on_dev(standings)  # with the seeds that looks have added
            if best and not keep_best(folder, best):
                results["best"]["path"] = None
            finish(folder, results)
            heard.concluded(events.concluded(folder, results))
        _over(execution, entries)


def _over(execution: Execution, entries: Sequence[Entry]) -> None:
    """Nothing is waited for any more, and the board says what became of every arm."""
    far_jobs.begin_anew(execution.folder)
    for entry in entries:
        execution.board.concluded(entry.standing.name, entry.standing.status)
    execution.board.write("finished")


def _opened(question: Plan, execution: Execution, opened: Callable[[Plan], Bench]) -> Bench:
    """What the question names, as the run in the folder was begun with, if one was.

    Raises UserError where it is something else, or nothing that can be trained on.
    """
    folder, bench = execution.folder, opened(question)
    check_folder(bench, folder, input_hashes(bench))
    for note in (begun_with.other_versions(folder), begun_with.keep_precision(bench, folder)):
        if note and not execution.quiet:
            _warn(f"note: {note}")
    other_text.windows(bench)  # a text that cannot be used is told before anything is trained
    if not (folder / "config.json").exists():
        check_used(bench.task)
        check_entries(bench)
    return bench


def _config(question: Plan, by_name: bool) -> dict[str, Any]:
    return {"version": run_folder.VERSION, "by_name": by_name, **to_json(question)}


def finish(folder: Path, results: dict[str, Any]) -> None:
    """The verdict, results.json and the page."""
    results["verdict"] = decide(results)
    run_folder.check_stands(folder)
    sealed_json.put(folder / "results.json", results)
    report.write(results, folder / "report.html")


def _warn(line: str) -> None:
    say(line, sys.stderr)
