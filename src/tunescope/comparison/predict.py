"""What an arm of a finished run answers to new rows, asked as its test rows were: the same words, order and scores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tunescope.comparison import arms, new_rows, saved_artifact, score
from tunescope.comparison.job import Job
from tunescope.comparison.new_rows import Rows
from tunescope.comparison.saved_arm import attached_again
from tunescope.data import conversations, scores
from tunescope.errors import Note, UserError
from tunescope.report.verdict import stats
from tunescope.system import run_folder, shell
from tunescope.system.own_modes import own_modes
from tunescope.tasks.task import labelled
from tunescope.trial import moved_files, questions
from tunescope.trial.lent import lent
from tunescope.trial.open import open_bench
from tunescope.trial.plan_json import from_json
from tunescope.trial.provenance import inputs_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tunescope.attachment.tuned import Tuned
    from tunescope.tasks.task import Encoded, Prediction
    from tunescope.trial.bench import Bench
    from tunescope.trial.plan import Plan

AT_ONCE = 512  # rows between two looks at how far it is
FIELD = "prediction"


@dataclass
class Asked:
    """New rows and the arm that answers them.

    rows: as they were given. called: what an answer is called. arm: its name. without: how many rows have no answer of
    their own. outputs, statistics: once the rows are answered, of each text that is asked.
    """

    rows: list[dict[str, Any]]
    called: str
    arm: str
    without: int
    bench: Bench
    todo: Job
    tuned: Tuned
    outputs: list[str] = field(default_factory=list)
    statistics: list[list[float]] = field(default_factory=list)

    def answered(self) -> Iterator[dict[str, Any]]:
        """Each row with its answer; of a task of labels with the probability of that label among all of them."""
        for row, one in zip(self.rows, self._predictions(), strict=True):
            share = {self._share: one.shares.get(one.text)} if self.bench.task.is_labelled else {}
            yield {**row, self.called: one.text, **share}

    def encode(self) -> None:
        """Find now what cannot be asked, and not when others are answered: UserError for it, a note of rows cut."""
        cut = score.cut(self.bench, self.todo, self.tuned, "test")["test"]
        if cut:
            what = f"{cut:,} of {len(self._items):,} inputs are cut to fit the model's positions"
            warnings.warn(Note(f"{what}; the end of the template stays."), stacklevel=2)

    @property
    def names(self) -> list[str]:
        """All fields of the rows that are answered, in the order in which they come first."""
        own = [self.called, *([self._share] if self.bench.task.is_labelled else [])]
        return [*dict.fromkeys(name for row in self.rows for name in row), *own]

    @property
    def _share(self) -> str:
        return f"{self.called}_probability"

    def _predictions(self) -> Iterator[Prediction]:
        """One a row, in the order of the rows; rows that ask the same have the same."""
        items, numbers, todo = self._items, self._numbers, self.todo
        of_each = todo.arm.demos is not None and todo.arm.demos.each  # found for all rows each time they are asked for
        known: dict[int, Prediction] = {}
        at, most = 0, len(items) if of_each else AT_ONCE
        for start in range(0, len(items), most):
            some = range(start, min(start + most, len(items)))
            found = questions.predictions(todo.arm, self.bench, self.tuned, "test", todo.seed, only=list(some))
            self.outputs += [one.text for one in found]
            self.statistics += [list(one.stats) for one in found]
            own = {items[item]: one for item, one in zip(some, found, strict=True)}
            known |= {numbers[row]: one for row, one in own.items()}
            end = items[some.stop] if some.stop < len(items) else len(self.rows)
            yield from (own.get(row) or known[numbers[row]] for row in range(at, end))
            at = end

    @cached_property
    def _items(self) -> list[int]:
        """Of each text that is asked the number of its first row."""
        return [place if one.index is None else one.index for place, one in enumerate(self._encoded)]

    @property
    def _encoded(self) -> list[Encoded]:
        return questions.rows_of(self.todo.arm, self.bench, self.tuned, "test", self.todo.seed)

    @cached_property
    def _numbers(self) -> list[int]:
        return inputs_of(self.bench, "test")

    def score(self) -> tuple[str, stats.Interval] | None:
        """The metric and its score with an interval over the rows; None where a row has no answer of its own."""
        if self.without:
            return None
        metric, inputs = self.bench.task.metric, [self._numbers[row] for row in self._items]
        same = inputs if len(set(inputs)) < len(inputs) else None
        return metric, stats.interval({self.todo.seed: self._of_all()}, stats.scorer(metric), inputs=same)

    def _of_all(self) -> list[list[float]]:
        """The statistics; of written texts over all of them at once, for some metrics weigh by what the set has."""
        task = self.bench.task
        if not task.writes:
            return self.statistics
        given = [one.references for one in self._encoded]
        found = scores.statistics(task.metric, self.outputs, given, lowercase=task.lowercase)
        return [list(one) for one in found]


def predict(
    run: str | Path,
    rows: str | Path | Rows,
    *,
    arm: str = "",
    field: str = FIELD,
    device: str = "",
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> list[dict[str, Any]]:
    """The rows with what an arm of a run answers, asked as its test rows were: same words, template and decoding.

    Args:
        run: the folder of a comparison that is finished, its model and its rows where they were.
        rows: a file, or dicts with the fields that the run asks of, with answers or without.
        arm: its name in the table; "" is the best on the development rows. It answers at its best seed there.
        field: what an answer is called; of labels FIELD_probability is that of the label among all of them.
        device: where the model is loaded; "" is where it was.
        model: the loaded one, of a run that was begun with it, and its tokenizer.

    An answer is "" where none could be read behind the steps that a model wrote. A label's probability is
    its share among the labels, to three digits; nothing was done to make it say how often such an answer is right.

    Raises:
        UserError: the run is not finished, something of it is gone or changed, the arm was not done, or a row cannot be
            asked.
    """
    how = {"arm": arm, "field": field, "device": device, "tokenizer": tokenizer}
    with lent(model), own_modes(), asked(run, rows, model=model, **how) as question:  # type: ignore[arg-type]
        return list(question.answered())


@contextmanager
def asked(
    folder: str | Path,
    data: str | Path | Rows,
    *,
    arm: str = "",
    field: str = FIELD,
    device: str = "",
    model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Iterator[Asked]:
    """The rows and the arm of `predict`, ready; it raises what that does."""
    folder = Path(folder)
    results = _results(folder)
    name, run = _chosen(folder, results, arm)
    plan = _planned(folder, device, model)
    rows = new_rows.given(data, plan.longest_field)
    bench = _opened(folder, results, plan, model, tokenizer).at(run["seed"])
    posed = new_rows.posed(bench, rows)
    without = sum(one is not row for one, row in zip(posed, rows, strict=True))
    given = [conversations.folded(row) for row in rows]
    own = replace(bench, splits=replace(bench.splits, test=posed), rows={}, means={}, facts=None, by_seed={})
    own.demos = type(own.demos)()
    planned = next(one for one in arms.planned_arms(bench) if one.name == name)
    todo = Job(run["id"], arms.ready(planned, bench), (), run["seed"], 0)
    _check_whole(folder, name, todo)
    with attached_again(own, todo, folder) as (answering, tuned):
        found = Asked(given, field, name, without, answering, todo, tuned)
        _check_free(found)
        found.encode()
        yield found


def _results(folder: Path) -> dict[str, Any]:
    run_folder.check_is_comparison(folder)
    if not (folder / "results.json").exists():
        run_folder.read_config(folder)
        raise UserError(f"{folder} is not finished. Type: tunescope resume {shell.path(folder)}")
    return run_folder.read_results(folder)


def _chosen(folder: Path, results: Mapping[str, Any], arm: str) -> tuple[str, Mapping[str, Any]]:
    """The arm that is named, or the best on the development rows, and of its runs the best there."""
    best = results.get("best")
    if not arm and best is None:
        raise UserError(f"{folder}: no arm finished, so that none can answer.")
    name = arm or str(best["arm"] if best else "")
    found = {one["name"]: one for one in results["arms"]}
    if name not in found:
        raise UserError(f"{name!r} is no arm of {folder}, which has: {', '.join(found)}.")
    if found[name]["status"] != "done" or not found[name]["runs"]:
        raise UserError(f"{name} was not done in {folder}: {found[name]['status']}, {found[name]['reason']}")
    return name, max(found[name]["runs"], key=lambda one: one["dev"])


def _planned(folder: Path, device: str, model: PreTrainedModel | None) -> Plan:
    """What the run was asked. UserError where it cannot be asked again from here."""
    config = run_folder.read_config(folder)
    if not config.pop("by_name", True) and model is None:
        raise UserError(
            f"{folder} was begun from Python with a loaded model. Give it again, from there: "
            "run.predict(rows, model=model, tokenizer=tokenizer)"
        )
    plan = replace(from_json(config, folder / "config.json"), forgetting="")  # of which no answer tells
    if "kind" not in plan.task:
        raise UserError(f"{folder} was begun with a task of its own, which only Python has; it is not kept.")
    if model is None:
        moved_files.check_there(plan, folder)
    return replace(plan, processes=1, device=device or plan.device)


def _opened(
    folder: Path,
    results: Mapping[str, Any],
    plan: Plan,
    model: PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Bench:
    """The plan with its model and rows. UserError where they are not what they were."""
    bench = open_bench(plan, model=model, tokenizer=tokenizer)
    known = {part: one["sha256"] for part, one in results["data"].items() if part in bench.sha256}
    changed = [str(bench.plan.data[part]) for part, one in known.items() if bench.sha256[part] != one]
    if bench.fingerprint != results["model"]["fingerprint"]:
        changed.append(str(bench.plan.model))
    if changed:
        raise UserError(f"{folder}: {' and '.join(changed)} changed since. Put back what was there, or compare anew.")
    labels = results["task"].get("labels")  # of an earlier version in the order of --words, which a head learned
    if labels and bench.task.is_labelled and sorted(labels) == sorted(labelled(bench.task).words):
        bench.task = replace(
            cast(Any, bench.task), words={label: labelled(bench.task).words[label] for label in labels}
        )
    return bench


def _check_whole(folder: Path, name: str, todo: Job) -> None:
    """UserError where what the arm has saved is gone or damaged, without which the model as it is would answer."""
    result = run_folder.finished(folder, todo.id)
    if result is None or not saved_artifact.is_whole(saved_artifact.place(folder, todo.id), result):
        again = f"tunescope resume {shell.path(folder)}"
        raise UserError(f"What {name} has saved in {folder} is gone or damaged. To have it made again, type: {again}")


def _check_free(found: Asked) -> None:
    """UserError where a row has a field of the name of the answers, or these have no name."""
    if not found.called:
        raise UserError("--field is empty; give the answers a name: --field NAME")
    if taken := next((name for name in found.names if found.names.count(name) > 1), None):
        raise UserError(f"The rows have a field {taken!r} of their own. Give the answers another name: --field NAME")
