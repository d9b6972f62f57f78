"""One arm run: attach, train, score, save. Whatever happens to it is an outcome, so that the others go on."""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tunescope.attachment.attached import Attached, attach
from tunescope.attachment.attention.reach import quick_to_train
from tunescope.attachment.guards.checkpointing import checkpointed
from tunescope.attachment.share import as_first, is_shared
from tunescope.attachment.tuned import Bare, Tuned
from tunescope.comparison import examples, inside_attention, other_text, saved_artifact, score
from tunescope.comparison.arms import passes
from tunescope.comparison.job import Job
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, Spec
from tunescope.search.apply import made, with_found
from tunescope.search.search import Found
from tunescope.system import files, run_folder, sealed_json
from tunescope.system.machine import memory_meter
from tunescope.system.say import say
from tunescope.trial import questions
from tunescope.trial.bench import Bench
from tunescope.trial.demos import draw
from tunescope.trial.dev_rows import early_rows
from tunescope.trial.specs import specs_at
from tunescope.trial.train.loop import (
    Diverged,
    Problem,
    Progress,
    Saving,
    is_paused,
    memory_errors_named,
    train,
)
from tunescope.trial.train.parts import OutOfMemory, Parts
from tunescope.trial.train.settings import Settings
from tunescope.trial.train.share import share_of
from tunescope.trial.train.state import State

Report = Callable[[Progress], None]
Outcome = dict[str, Any]
KEPT = ("done", "diverged")
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
    settings = replace(bench.plan.settings, steps=todo.steps)
    meter = memory_meter(bench.device)
    with torch.random.fork_rng(), attached(bench, todo, _specs(bench, todo)) as tuned:
        torch.manual_seed(todo.seed)
        saving = Saving(work, SAVE_EVERY)
        try:
            with quick_to_train(bench.model, settings.precision), training_in_place(tuned, settings):
                problem = problem_of(bench, todo, tuned.train())
                state = train(problem, settings, todo.seed, saving=saving, report=report, until=todo.until)
        except Diverged as problem_found:
            return stopped(todo, "diverged", problem_found)
        if is_paused(state, settings):
            return _paused(todo, state, meter())
        tuned.eval()
        return concluded(bench, todo, work, tuned, state, meter())


def training_in_place(tuned: Tuned, settings: Settings) -> AbstractContextManager[object]:
    """Full tuning alone trains the weights themselves, but where a decay is of their change."""
    if isinstance(tuned, Attached) and tuned.is_weights and not settings.weight_decay:
        return tuned.in_place()
    return nullcontext()


def _paused(todo: Job, state: State, memory: float) -> Outcome:
    """What is known of a run that may go on; it is told, and not kept."""
    known = _done(todo, state.best_score, state.step, state.seconds, memory, state.curve)
    return known | {"status": "paused", "reason": f"at step {state.step} of {todo.steps}, dev {state.best_score:.4g}"}


def concluded(bench: Bench, todo: Job, work: Path, tuned: Tuned, state: State, memory: float) -> Outcome:
    """The outcome of a run that was trained, and its artifact in the folder."""
    demonstrations = _save(bench, todo, work, tuned)
    cut = score.cut(bench, todo, tuned, "train", "dev")
    dev = state.best_score if todo.scored else None
    return _done(todo, dev, state.step, state.seconds, memory, state.curve) | {
        "best_step": state.best_step,
        **saved_artifact.kept(work),
        "cut": cut,
        "demonstrations": demonstrations,
    }


def _untrained(bench: Bench, todo: Job, work: Path, report: Report) -> Outcome:
    """An arm that trains nothing: its development score, and what it took."""
    meter, start = memory_meter(bench.device), time.monotonic()
    with attached(bench, todo, _specs(bench, todo)) as tuned:
        dev = score.score(bench, todo, tuned, "dev").value
        demonstrations = _save(bench, todo, work, tuned)
        cut = score.cut(bench, todo, tuned, "dev")
    found = _done(todo, dev, 0, time.monotonic() - start, meter(), [])
    return found | {"best_step": 0, "cut": cut, "demonstrations": demonstrations} | saved_artifact.kept(work)


def _searched(bench: Bench, todo: Job, work: Path, report: Report) -> Outcome:
    """An arm whose words are looked for: its score is on all development rows, as that of every arm."""
    meter, start = memory_meter(bench.device), time.monotonic()
    found = todo.arm.search.search(bench, passes(bench), todo.seed, lambda line: None)
    own = with_found(bench, found)
    with attached(own, todo, [one for one in [made(own, found.text)] if one is not None]) as tuned:
        dev = score.score(own, todo, tuned, "dev").value
        if tuned.artifacts:
            _save(own, todo, work, tuned)
        cut = score.cut(own, todo, tuned, "dev")
    kept = asdict(replace(found, words=dict(found.words), trace=()))
    known = {"best_step": 0, "cut": cut, "found": kept} | saved_artifact.kept(work)
    return _done(todo, dev, 0, time.monotonic() - start, meter(), []) | known


def _tested(bench: Bench, todo: Job, folder: Path) -> Outcome:
    """The test set, with the artifact as it lies on the disk."""
    from tunescope.attachment.artifact_folder import load

    saved = saved_artifact.place(folder, todo.id)
    if todo.arm.search is not None:
        found_before = sealed_json.read(saved.parent / "result.json", may_lack=run_folder.is_unsealed(folder))
        bench = with_found(bench, Found(**found_before["found"]))
    with attached(bench, todo, load(saved) if saved.exists() else ()) as tuned:
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


def _specs(bench: Bench, todo: Job) -> tuple[Any, ...]:
    """The arm's specs behind its demonstrations, in the order that was found for them."""
    rows = (
        questions.shown(todo.arm.demos, todo.arm.chain, bench, todo.seed).rows
        if todo.arm.in_front and todo.arm.demos
        else ()
    )
    return specs_at(todo.arm, bench, rows, todo.seed)


def attached(bench: Bench, todo: Job, what: Sequence[Spec | Artifact]) -> AbstractContextManager[Tuned]:
    if todo.arm.demos and todo.arm.demos.each:
        draw.source(todo.arm.demos, bench)  # rows are compared by the model as it is
    if not what:
        return nullcontext(Bare())
    return attach(bench.model, *what, tokenizer=bench.tokenizer, seed=todo.seed)


def problem_of(bench: Bench, todo: Job, tuned: Tuned) -> Problem:
    """The task on this model, as functions of rows by number."""
    rows = score.rows_of(bench, todo, tuned, "train")
    drawn = questions.drawn_rows(todo.arm, bench, tuned, todo.seed)
    parameters = dict(tuned.named_parameters())
    first, early = todo.arm.in_front, early_rows(bench, todo.steps)
    return Problem(
        parameters=parameters,
        rates={name: todo.rates[int(name.partition(".")[0]) - first] for name in parameters},
        loss=lambda chosen: _loss(bench, drawn(chosen)),
        score=partial(_dev, bench, todo, tuned, early),
        whole=None if early is None else partial(_dev, bench, todo, tuned),
        lengths=[len(row.input_ids) + len(row.target_ids) for row in rows],
        labelled=[max(1, len(row.target_ids)) for row in rows],
        parts=Parts(bench.plan.settings.accumulate, partial(_tell, todo)) if bench.plan.halve_batches else None,
        share=share_of(bench.model, parameters),
    )


def _dev(bench: Bench, todo: Job, tuned: Tuned, only: Sequence[int] | None = None) -> float:
    """The development score, where the run has one."""
    return as_first(bench.model, score.score(bench, todo, tuned, "dev", only).value) if todo.scored else 0.0


def _tell(todo: Job, line: str) -> None:
    say(f"{todo.arm.arm.name}: {line}", sys.stderr)


def _loss(bench: Bench, rows: Sequence[Any]) -> Tensor:
    with checkpointed(bench.model) if bench.plan.gradient_checkpointing else nullcontext():
        return bench.task.loss(bench.model, rows, bench.tokenizer)


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


def _done(todo: Job, dev: float | None, steps: int, seconds: float, memory: float, curve: Sequence[Any]) -> Outcome:
    return {
        **_header(todo),
        "status": "done",
        "reason": "",
        "dev": dev,
        "steps": steps,
        "seconds": round(seconds, 3),
        "memory_mb": round(memory, 1),
        "curve": list(curve),
    }


def _header(todo: Job) -> dict[str, Any]:
    return {"id": todo.id, "spec": todo.arm.label, "learning_rate": todo.rate, "seed": todo.seed}


def stopped(todo: Job, status: str, reason: object) -> Outcome:
    """The outcome of a run without a score."""
    return {**_header(todo), "status": status, "reason": str(reason), "dev": None}
