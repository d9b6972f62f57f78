"""Arms, learning rates and seeds at one budget: from a model and a file to a verdict and a page."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tunescope import report
from tunescope.comparison import inside_attention
from tunescope.comparison.pilot import piloted
from tunescope.comparison.protocol import entered, keep_best, tried
from tunescope.comparison.results import assemble
from tunescope.comparison.standing import best_on_dev
from tunescope.errors import UserError
from tunescope.report import terminal
from tunescope.report.verdict.verdict import decide
from tunescope.system import files, machine, run_folder
from tunescope.system.lock import locked
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.kinds.reasoning import Reasoning
from tunescope.trial import plan
from tunescope.trial.bench import Bench
from tunescope.trial.identity import default_folder
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan, default_settings
from tunescope.trial.train.loop import Settings


@dataclass(frozen=True)
class Comparison:
    """A finished run: its folder, and results.json as it lies there."""

    folder: Path
    results: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """The answer and its three sentences."""
        return terminal.verdict(self.results)

    def table(self) -> str:
        return terminal.table(self.results)

    def best(self) -> Any:
        """The best arm's artifacts, to give to `attach`."""
        from tunescope.attachment.saving import load

        if not (self.folder / "best").exists():
            raise UserError(f"{self.folder} has no artifact: its best arm is the model as it is.")
        return load(self.folder / "best")

    def __str__(self) -> str:
        return terminal.everything(self.results)


def compare(
    model: Any,
    data: str | Path | Mapping[str, str | Path],
    *,
    arms: Sequence[str] = (),
    budget: int | Sequence[int] | None = None,
    task: Any = "classification",
    tokenizer: Any = None,
    seeds: int | Sequence[int] = 3,
    trials: int = 3,
    learning_rates: Sequence[float] = (),
    steps: int = 500,
    batch_size: int = 16,
    settings: Settings | None = None,
    k_shot: int | None = None,
    together: int = 1,
    halving: bool = False,
    beyond: int = 0,
    out: str | Path | None = None,
    workers: int = 1,
    threads: int = 1,
    device: str | None = None,
    quiet: bool = False,
    pilot: bool = False,
) -> Comparison:
    """Which way of adapting `model` to `data` is enough. A run already begun in `out` is gone on with.

    Args:
        model: a folder or hub id; or a loaded transformers model, with its tokenizer.
        data: a JSONL, CSV or TSV file, or {"train": ..., "dev": ..., "test": ...}.
        arms: such as "zero-shot", "demos:k=4", "prefix", "lora:rank=4"; none means those for the model's kind.
        budget: stored parameters of each arm, met by its method's size; several repeat the arms.
        task: "classification", "generation", "reasoning", or a Task.
        tokenizer: of a loaded model.
        seeds: how many, or which.
        trials: learning rates tried for each trained arm, from its method's own grid.
        learning_rates: these for every arm instead.
        steps: updates of one run, at most.
        batch_size: rows of one update.
        settings: all of the training, instead of `steps` and `batch_size` alone.
        k_shot: rows of each label that each seed draws to train on, and as many to choose by; needs data["test"].
        together: runs that share each pass of the model, where they can; 0 measures what is quickest, and tells.
        halving: stop learning rates that have clearly lost: at a third of the steps the best third goes on.
        beyond: learning rates past an end of its grid that an arm may try, one at a time, while the last one wins.
        out: the run's folder; by default one in runs/, named by the question.
        workers: processes; more than one need the model by name.
        pilot: only a tenth of the steps in all, at the first seed, to say what the rest would find and cost.
        threads: of each arm run; results do not depend on `workers`, but their last bits may on this.
        device: where the model is; None takes a GPU where there is one.
        quiet: nothing is printed.

    Raises:
        UserError: something given cannot be used, or every arm was refused.
    """
    named = isinstance(model, str | Path)
    question = Plan(
        model=str(model) if named else _name(model),
        data=plan.data_paths(data),
        task=task_json(task),
        arms=_as_tuple(arms),
        budgets=_as_tuple(budget),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        trials=trials,
        rates=tuple(learning_rates),
        k_shot=k_shot,
        together=together,
        halving=halving,
        beyond=beyond,
        threads=threads,
        device=device or machine.default_device().type,
        settings=settings or default_settings(steps, batch_size),
    )
    question = piloted(question) if pilot else question
    if not named and workers != 1:
        raise UserError(f"compare(workers={workers}) needs the model by name or folder: each process loads its own.")
    folder = Path(out) if out is not None else default_folder(plan.check(question))
    given = None if isinstance(task, str) else task
    if not named and tokenizer is None:
        raise UserError("compare with a loaded model needs its tokenizer: compare(model, data, tokenizer=tokenizer).")
    opened = partial(open_bench, question, None if named else model, tokenizer, given)
    return run(question, folder, opened, by_name=named and "kind" in question.task, workers=workers, quiet=quiet)


def ask(question: Plan, folder: Path, *, workers: int = 1, quiet: bool = False) -> Comparison:
    """`run` with all that it needs named by the plan."""
    return run(question, folder, partial(open_bench, question), by_name=True, workers=workers, quiet=quiet)


def resume(folder: str | Path, *, workers: int = 1, quiet: bool = False) -> Comparison:
    """Go on with a run from its folder; of one that is finished only the page is made again.

    folder: of the run. workers: processes. quiet: nothing is printed.

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
    question = plan.from_json(config, folder / "config.json")
    return ask(question, folder, workers=workers, quiet=quiet)


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
) -> Comparison:
    """Everything between the question and the page, in a folder that this process holds alone."""
    plan.check(question)
    if workers < 1:
        raise UserError(f"--workers {workers} is too small; give a whole number of 1 or more.")
    with files.disk_errors_named(folder), locked(folder, say=_warn), machine.threads(question.threads):
        config = {"version": run_folder.VERSION, "by_name": by_name, **plan.to_json(question)}
        run_folder.check_config(folder, config)
        bench = opened()
        entries = entered(bench)
        run_folder.write_config(folder, config)
        try:
            standings = tried(bench, entries, folder, workers, quiet)
        except KeyboardInterrupt:
            raise Stopped(f"stopped; resume with: tunescope resume {folder}") from None
        best = best_on_dev(standings)
        results = assemble(bench, standings, best) | {"inside": inside_attention.pictures(bench, standings, folder)}
        if best and not keep_best(folder, best):
            results["best"]["path"] = None
        finish(folder, results)
    return Comparison(folder, run_folder.read_results(folder))


def finish(folder: Path, results: dict[str, Any]) -> None:
    """The verdict, results.json and the page."""
    results["verdict"] = decide(results)
    files.put_json(folder / "results.json", results)
    report.write(results, folder / "report.html")


def task_json(task: Any) -> dict[str, Any]:
    """The task's name and settings; of a class that tunescope does not have, only what it says of itself."""
    if isinstance(task, str):
        return {"kind": task}
    if isinstance(task, Classification | Generation | Reasoning) and is_dataclass(task):
        settings = {name: value for name, value in asdict(task).items() if name != "notes"}
        return {"kind": type(task).__name__.lower(), **settings}
    return {"own": type(task).__name__}


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str | int) else tuple(value)


def _name(model: Any) -> str:
    return str(getattr(model.config, "name_or_path", "") or model.config.model_type)


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
