"""One arm run: attach, train, score, save. Whatever happens to it is an outcome, so that the others go on."""

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tunescope.attachment.attached import Attached
from tunescope.attachment.attention.reach import quick_to_train
from tunescope.attachment.share import as_first, is_shared
from tunescope.attachment.tuned import Tuned
from tunescope.comparison import examples, inside_attention, other_text, saved_artifact, score
from tunescope.comparison.arms import passes
from tunescope.comparison.job import Job
from tunescope.comparison.outcome import KEPT, Outcome, done, paused, stopped
from tunescope.comparison.problem import attached, problem_of, specs_of, training_in_place
from tunescope.comparison.saved_arm import attached_again
from tunescope.errors import UserError
from tunescope.search.apply import made, shown, with_found
from tunescope.system import files, run_folder, sealed_json
from tunescope.system.machine import memory_meter, seeded
from tunescope.trial import questions
from tunescope.trial.bench import Bench
from tunescope.trial.train.loop import (
    Diverged,
    Progress,
    Saving,
    is_paused,
    memory_errors_named,
    train,
)
from tunescope.trial.train.microbatches import OutOfMemory
from tunescope.trial.train.state import State

Report = Callable[[Progress], None]
SAVE_EVERY = 30.0  # seconds between saved states of a run; a quick run saves none


def run(bench: Bench, todo: Job, folder: Path, report: Report) -> Outcome:
    """What was found, read from the folder if it was found before and is whole.

    A diverged run is a finding and is kept. Refused, out of memory and failed may go well another time: they are
    told, and tried again by the next `resume`.

    Raises:
        UserError: the disk fails.
    """
    bench = bench.at(todo.seed)
    result = before(todo, folder)
    if result is None:
        with files.disk_errors_named(folder):
            work = run_folder.working(folder, todo.id)
        find_out = _searched if todo.arm.search is not None else _trained if todo.arm.trained else _untrained
        result = _guarded(todo, folder, lambda: find_out(bench, todo, work, report))
        _check_together(bench, result)
        if result["status"] not in KEPT:
            run_folder.leave(work)
            return result
        with files.disk_errors_named(folder):
            run_folder.finish(work, folder, todo.id, result)
    if not todo.test or (result := as_first(bench.model, result))["status"] != "done":
        return result
    tested = run_folder.finished(folder, todo.id, "test.json")
    if tested is None:
        tested = _guarded(todo, folder, lambda: _tested(bench, todo, folder))
        _check_together(bench, tested)
        if "stats" not in tested:
            return as_first(bench.model, tested)
        with files.disk_errors_named(folder):
            sealed_json.put(run_folder.folder(folder, todo.id) / "test.json", tested)
    return as_first(bench.model, result | tested | {"forgetting": other_text.measured(bench, todo, folder)})


def _check_together(bench: Bench, outcome: Outcome) -> None:
    """UserError where one of several processes has failed in what the others go on with."""
    if is_shared(bench.model) and outcome.get("status") in ("out of memory", "failed"):
        raise UserError(
            f"{outcome['spec']}, seed {outcome['seed']}, in one of several processes: {outcome['reason']}. Type "
            "tunescope resume, with other options where they are needed: what was done stays."
        )


def before(todo: Job, folder: Path) -> Outcome | None:
    """What was found before; None too where a chosen run's artifact is damaged or gone, so that it is made again."""
    result = run_folder.finished(folder, todo.id)
    if result is None or not todo.test or result["status"] != "done":
        return result
    return result if saved_artifact.is_whole(saved_artifact.place(folder, todo.id), result) else None


def is_known(bench: Bench, folder: Path, todo: Job) -> bool:
    """Whether `run` would only read what was found before."""
    result = before(todo, folder)
    if result is None or result["status"] != "done" or not todo.test:
        return result is not None
    tested = run_folder.finished(folder, todo.id, "test.json") is not None
    return tested and other_text.is_known(bench, todo, folder)


def _guarded(todo: Job, folder: Path, work: Callable[[], Outcome]) -> Outcome:
    """What goes wrong in one arm, as its outcome."""
    try:
        with memory_errors_named(), files.disk_errors_named(folder):
            return work()
    except OutOfMemory as problem:
        return stopped(todo, "out of memory", problem)
    except files.DiskError:
        raise
    except UserError as problem:
        if isinstance(problem.__cause__, OSError) and files.disk_problem(problem.__cause__):
            raise problem.__cause__ from None  # an artifact that the disk did not give is not refused
        return stopped(todo, "refused", problem)
    except Exception as problem:
        path = folder / "arms" / f"{todo.id}.error.txt"
        path.write_text(traceback.format_exc())
        return stopped(todo, "failed", f"{type(problem).__name__}: {problem} (see arms/{path.name})")


def _trained(bench: Bench, todo: Job, work: Path, report: Report) -> Outcome:
    settings = replace(bench.plan.training, steps=todo.steps)
    meter = memory_meter(*bench.devices)
    with attached(bench, todo, specs_of(bench, todo)) as tuned, seeded(todo.seed):
        saving = Saving(work, SAVE_EVERY)
        try:
            with quick_to_train(bench.model, settings.precision), training_in_place(tuned, settings):
                problem = problem_of(bench, todo, tuned.train())
                state = train(problem, settings, todo.seed, saving=saving, report=report, until=todo.until)
        except Diverged as problem_found:
            return stopped(todo, "diverged", problem_found)
        if is_paused(state, settings):
            return paused(todo, state, meter())
        tuned.eval()
        return concluded(bench, todo, work, tuned, state, meter())


def concluded(bench: Bench, todo: Job, work: Path, tuned: Tuned, state: State, memory: float) -> Outcome:
    """The outcome of a run that was trained, and its artifact in the folder."""
    demonstrations = _save(bench, todo, work, tuned)
    cut = score.cut(bench, todo, tuned, "train", "dev")
    dev = state.best_score if todo.scored else None
    return done(todo, dev, state.step, state.seconds, memory, state.curve) | {
        "best_step": state.best_step,
        **saved_artifact.kept(work),
        "cut": cut,
        "demonstrations": demonstrations,
    }


def _untrained(bench: Bench, todo: Job, work: Path, report: Report) -> Outcome:
    """An arm that trains nothing: its development score, and what it took."""
    meter, start = memory_meter(*bench.devices), time.monotonic()
    with attached(bench, todo, specs_of(bench, todo)) as tuned:
        dev = score.score(bench, todo, tuned, "dev").value
        demonstrations = _save(bench, todo, work, tuned)
        cut = score.cut(bench, todo, tuned, "dev")
    found = done(todo, dev, 0, time.monotonic() - start, meter(), [])
    return found | {"best_step": 0, "cut": cut, "demonstrations": demonstrations} | saved_artifact.kept(work)


def _searched(bench: Bench, todo: Job, work: Path, report: Report) -> Outcome:
    """An arm whose words are looked for: its score is on all development rows, as that of every arm."""
    meter, start = memory_meter(*bench.devices), time.monotonic()
    found = todo.arm.search.search(bench, passes(bench), todo.seed, lambda line: None)
    own = with_found(bench, found)
    with attached(own, todo, [one for one in [made(own, found.text)] if one is not None]) as tuned:
        dev = score.score(own, todo, tuned, "dev").value
        if tuned.artifacts:
            _save(own, todo, work, tuned)
        cut = score.cut(own, todo, tuned, "dev")
    kept = asdict(replace(found, words=dict(found.words), trace=()))
    known = {"best_step": 0, "cut": cut, "found": kept, "shown": shown(found, bench.task)} | saved_artifact.kept(work)
    return done(todo, dev, 0, time.monotonic() - start, meter(), []) | known


def _tested(bench: Bench, todo: Job, folder: Path) -> Outcome:
    """The test set, with the artifact as it lies on the disk."""
    with attached_again(bench, todo, folder) as (bench, tuned):
        found = score.score(bench, todo, tuned, "test")
        cut = score.cut(bench, todo, tuned, "test")
        looked = (
            inside_attention.mechanism(bench, score.rows_of(bench, todo, tuned, "dev"), tuned)
            if isinstance(tuned, Attached)
            else None
        )
    return examples.of_run(bench, found) | {
        "stats": found.stats,
        "cut_test": cut,
        "reading": found.figures | {"rows": len(found.stats)} if found.figures else None,
        "mechanism": looked,
    }


def _save(bench: Bench, todo: Job, work: Path, tuned: Tuned) -> dict[str, Any] | None:
    """What a person who finds the artifact needs to use it goes with it; what is to be told of the demonstrations."""
    from tunescope.attachment.artifact_folder import save

    task = questions.task_of(todo.arm, bench, tuned, todo.seed)
    demonstrations = questions.demo_facts(todo.arm, bench, todo.seed, task)
    if not tuned.artifacts:
        return demonstrations
    about = {"arm": todo.arm.arm.name, "spec": todo.arm.label, "seed": todo.seed, "task": task.describe()}
    files.remove(work / "artifact")
    artifacts = [artifact.fold() for artifact in tuned.artifacts]
    save(work / "artifact", artifacts, model=bench.model, tokenizer=bench.tokenizer, about=about)
    return demonstrations
