"""Arms, learning rates and seeds at one budget: from a model and a file to a verdict and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.comparison import procedure
from tunescope.comparison.citations import bibtex
from tunescope.comparison.conclusion import no_artifact
from tunescope.comparison.pilot import piloted
from tunescope.data.given_rows import Data, as_paths
from tunescope.errors import UserError
from tunescope.report import notebook, tabular, terminal
from tunescope.system import files, job_folder, plugins, ranks, run_folder, shell
from tunescope.system.executor import HERE
from tunescope.system.own_modes import own_modes
from tunescope.tasks.make import USUAL, task_json, with_fields
from tunescope.tasks.task import Task
from tunescope.trial import moved_files
from tunescope.trial.bench import Bench
from tunescope.trial.identity import RUNS, default_folder
from tunescope.trial.lent import lent
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan
from tunescope.trial.plan_check import check
from tunescope.trial.plan_fields import data_paths, is_field, model_path, planned, text_path
from tunescope.trial.plan_json import from_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BIBTEX = "bibtex"


@dataclass(frozen=True)
class Comparison:
    """A finished run: its folder, as it was typed, and results.json as it lies there."""

    folder: Path
    results: Mapping[str, Any]
    place: Path = field(init=False, repr=False, compare=False)  # the folder, wherever the process goes

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.folder.absolute())

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
        """The best arm's artifacts, to give to `attach`.

        Raises UserError where there are none, with the reason.
        """
        from tunescope.attachment.artifact_folder import load

        if not (self.place / "best").exists():
            if told := no_artifact(self.results):
                raise UserError(f"run.best() of {self.place}: {told}.")
            again = f"tunescope resume {shell.path(self.place)}"
            raise UserError(f"{self.place / 'best'} is gone. To have it made again, type: {again}")
        return load(self.place / "best")

    def predict(self, rows: str | Path | Sequence[Mapping[str, Any]], **how: Any) -> list[dict[str, Any]]:
        """`tunescope.predict` of this run."""
        from tunescope.comparison.predict import predict

        return predict(self.place, rows, **how)

    def __str__(self) -> str:
        return terminal.everything(self.results)


def compare(
    model: str | Path | PreTrainedModel,
    data: Data | Mapping[str, Data],
    *,
    plan: Plan | None = None,
    task: str | Task | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    executor: str = HERE,
    quiet: bool = False,
    pilot: bool = False,
    report_to: Sequence[str] = (),
    **fields: Any,
) -> Comparison:
    """Which way of adapting `model` to `data` is enough. A run already begun in `out` is gone on with.

    Modes of torch around the call (no_grad, autocast, a default type or device) are no part of it, and change nothing.

    Args:
        model: a folder or hub id; or a loaded transformers model, bare, with its tokenizer. It is given back on the
            device, in the modes and with the checkpointing that it had.
        data: a JSONL, CSV, TSV or Parquet file; rows as dicts in a list, a Dataset or a DataFrame, which are put into
            a file beside the run's folder; or any of these for each part, {"train": ..., "dev": ..., "test": ...}.
        plan: all of the question but the model, the data and, if it is given here, the task; on the cpu, and with all
            development rows scored each time, unless its device and dev_share say otherwise.
        task: "classification" (the default), "choice", "generation", "reasoning", or a Task.
        tokenizer: of a loaded model.
        out: the run's folder; by default one in runs/, named by the question.
        workers: processes; more than one need the model by name.
        executor: where they are: local, or ray or slurm with fields as in "ray:address=auto"; of these 0 workers are as
            many as there is room for. A queue, as Slurm's, is not waited for: `Submitted` says how to go on.
        pilot: an eighth of the steps in all, at the first seed, to say what the rest would find and cost.
        quiet: nothing is printed.
        report_to: loggers, such as ("tensorboard",): `tunescope compare --help` lists them.
        fields: instead of a plan, fields of `Plan` and `Settings`, or options of the command line: arms=["lora"],
            budget=20_000, seeds=3 (how many) or seeds=[1, 4] (which), learning_rates=[1e-3], steps=200, and so on;
            settings=Settings(...) is all of the training, and has all development rows scored each time, unless
            dev_share says less. Unless the task is a Task, its fields too: template="{text}
            It was", words={"neg": "bad", "pos": "great"}, text_field="review".

    Raises:
        UserError: something given cannot be used, or every arm was refused.
    """
    named = isinstance(model, str | Path)
    if not isinstance(task, str | Task | None):
        raise UserError(
            "compare(task=...) takes the name of a kind of task, whose fields stand beside it, as in "
            "task='classification', template='{text} It was'; or a Task; it was given: " + type(task).__name__ + "."
        )
    paths = as_paths(data, Path(out).parent if out is not None else Path(RUNS))
    question = _question(str(model) if named else _name(model), paths, plan, task, fields)
    question = piloted(question) if pilot else question
    if not named and (workers != 1 or executor != HERE):
        typed = f"workers={workers}" if workers != 1 else f"executor={executor!r}"
        raise UserError(f"compare({typed}) needs the model by name or folder: each process loads its own.")
    folder = Path(out) if out is not None else default_folder(check(question))
    given = None if task is None or isinstance(task, str) else task
    if not named and tokenizer is None:
        raise UserError("compare with a loaded model needs its tokenizer: compare(model, data, tokenizer=tokenizer).")
    opened = partial(open_bench, model=None if named else model, tokenizer=tokenizer, task=given)
    by_name = named and "kind" in question.task
    how = {"by_name": by_name, "workers": workers, "executor": executor, "quiet": quiet, "report_to": report_to}
    with lent(None if isinstance(model, str | Path) else model):
        return run(question, folder, opened, **how)  # type: ignore[arg-type]


def _question(
    model: str,
    data: str | Path | Mapping[str, str | Path],
    plan: Plan | None,
    task: str | Task | None,
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
    return replace(plan, model=model_path(model), data=data_paths(data), task=asks, forgetting=other)


def ask(
    question: Plan,
    folder: Path,
    *,
    workers: int = 1,
    executor: str = HERE,
    quiet: bool = False,
    report_to: Sequence[str] = (),
) -> Comparison:
    """`run` with all that it needs named by the plan."""
    given = {"workers": workers, "executor": executor, "quiet": quiet, "report_to": report_to}
    return run(question, folder, open_bench, by_name=True, **given)  # type: ignore[arg-type]


def resume(
    folder: str | Path,
    *,
    max_seeds: int | None = None,
    minutes: float | None = None,
    processes: int | None = None,
    workers: int = 1,
    executor: str = "",
    quiet: bool = False,
    report_to: Sequence[str] = (),
) -> Comparison:
    """Go on with a run from its folder; of one that is finished only the page is made again.

    folder: of the run. max_seeds: instead of the run's own. minutes: for this time; the run's own were for the last.
    processes: that share the model, instead of the run's own. workers: processes that each have it. executor: as of
    `compare`; "" is the one of the last time. quiet: nothing is printed. report_to: loggers, which are told of what was
    finished before too.

    Raises UserError for a folder without a run, one of a newer version or in use; for a run that was begun from Python
    with a loaded model or a task of its own, and for one whose model or data is gone: `compare` goes on with these.
    """
    folder = Path(folder)
    run_folder.check_is_comparison(folder)
    config = run_folder.read_config(folder)
    if not config.pop("by_name", True):
        raise UserError(
            f"{folder} was begun from Python with a loaded model or a task of its own; "
            f"to go on, call compare(..., out={str(folder)!r}) with the same arguments."
        )
    question = from_json(config, folder / "config.json")
    moved_files.check_there(question, folder)
    question = replace(question, minutes=minutes, max_seeds=question.max_seeds if max_seeds is None else max_seeds)
    question = question if processes is None else replace(question, processes=processes)
    before = executor or job_folder.executor_of(folder) or HERE
    return ask(question, folder, workers=workers, executor=before, quiet=quiet, report_to=report_to)


def run(
    question: Plan,
    folder: Path,
    opened: Callable[[Plan], Bench],
    *,
    by_name: bool,
    workers: int = 1,
    executor: str = HERE,
    quiet: bool = False,
    report_to: Sequence[str] = (),
) -> Comparison:
    """Everything between the question and the page, in a folder that this process holds alone.

    Raises Submitted where the executor has a queue that is not waited for.
    """
    check(question)
    processes = ranks.count(question.processes)
    execution = procedure.checked(question, folder, executor, workers, by_name, quiet)
    check(replace(question, processes=processes))
    joined, held = ranks.joined(processes, question.device), procedure.held(folder, processes)
    with own_modes(), joined, files.disk_errors_named(folder), held as mine:
        listening = report_to if ranks.rank() == 0 else ()
        procedure.carried_out(question, execution.in_folder(mine), opened, by_name, listening)
        return Comparison(mine, run_folder.read_results(mine))


def _name(model: PreTrainedModel) -> str:
    return str(getattr(model.config, "name_or_path", "") or model.config.model_type)
