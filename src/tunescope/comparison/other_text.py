"""What an artifact costs the model on other text: its own loss there, with the artifact on and without it.

It is no part of what a run's id is made of: it is measured behind the test set, kept beside it in a file of its own,
and measured anew where another text is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tunescope.attachment.artifact_folder import load
from tunescope.attachment.attached import attach
from tunescope.attachment.tuned import Tuned
from tunescope.comparison.job import Job
from tunescope.data.general_text import general_text
from tunescope.errors import UserError
from tunescope.system import files, run_folder, sealed_json
from tunescope.tasks.answers.own_loss import LOSSES, window_losses
from tunescope.tasks.prompts.templates import Ids, edges
from tunescope.tasks.windows import Windows, cut
from tunescope.trial import questions
from tunescope.trial.arm import ZERO_SHOT
from tunescope.trial.bench import Bench, room
from tunescope.trial.plan import NO_TEXT
from tunescope.trial.train.loop import memory_errors_named
from tunescope.trial.train.microbatches import OutOfMemory

FILE = "forgetting.json"
TOKENS, WINDOWS = 128, 16
FEWEST = 16  # tokens of a window that is worth it
Json = dict[str, Any]


def windows(bench: Bench) -> Windows | None:
    """The windows that every arm is measured on; None where none are asked for.

    A window takes half of the model's positions at most, so that a context has room in front of it.

    Raises:
        UserError: the file cannot be read, or its text is shorter than a window.
    """
    asked = bench.plan.forgetting
    if asked == NO_TEXT:
        return None
    if asked not in bench.other:
        bench.other[asked] = (_windows(bench, general_text(asked)), [])
    return bench.other[asked][0]


def _windows(bench: Bench, text: str) -> Windows:
    limit = room(bench, 0)
    length = TOKENS if limit is None else min(TOKENS, limit // 2)
    found = cut(text, bench.tokenizer, max(length, 1), WINDOWS)
    if bench.kind == "encoder" and bench.model.get_output_embeddings() is None:
        return Windows(found.sha256, reason="an encoder with a classification head has no loss of its own on a text")
    if found.reason:
        return found
    if length < FEWEST:
        return Windows(found.sha256, reason=f"the model has only {limit} positions")
    if not found.rows:
        raise UserError(
            f"--forgetting {Path(bench.plan.forgetting).name} is shorter than a window of {length} tokens. Give "
            "a longer text, or type: --forgetting none"
        )
    return found


def is_known(bench: Bench, todo: Job, folder: Path) -> bool:
    """Whether `measured` would only read."""
    asked = windows(bench)
    return asked is None or bool(asked.reason) or _kept(asked, todo, folder) is not None


def measured(bench: Bench, todo: Job, folder: Path) -> Json | None:
    """How each window's loss changes with the run's artifact on; None where nothing is asked for.

    {"before", "after": means, "changes": of each window, "reason": why there are none}. What goes wrong is a reason:
    the arm's score does not hang on it.
    """
    asked = windows(bench)
    if asked is None or asked.reason:
        return None if asked is None else _none(asked.reason)
    found = _kept(asked, todo, folder)
    if found is None:
        try:
            with memory_errors_named():
                found = _measured(bench, asked.rows, todo, folder)
        except UserError as problem:
            found = _none(str(problem))
        except OutOfMemory as problem:
            return _none(f"out of memory: {problem}")  # it may go well another time
        except Exception as problem:
            if files.disk_problem(problem):
                raise
            return _none(f"{type(problem).__name__}: {problem}")
        with files.disk_errors_named(folder):
            sealed_json.put(run_folder.folder(folder, todo.id) / FILE, {"of": _of(asked), **found})
    return {name: value for name, value in found.items() if name != "of"}


def _measured(bench: Bench, rows: Sequence[Ids], todo: Job, folder: Path) -> Json:
    saved = run_folder.folder(folder, todo.id) / "artifact"
    before = _bare(bench, rows)
    if todo.arm.label == ZERO_SHOT:
        after = before
    elif not saved.exists():
        raise UserError("it leaves no artifact that stands before other text")
    else:
        with attach(bench.model, *load(saved), tokenizer=bench.tokenizer, seed=todo.seed) as tuned:
            after = losses(bench, todo, tuned, rows)
    if not all(map(isfinite, (*before, *after))):
        raise UserError("a loss on other text is not finite")
    changes = [round(late - early, 6) for early, late in zip(before, after, strict=True)]
    return {"before": round(fmean(before), 6), "after": round(fmean(after), 6), "changes": changes, "reason": ""}


def losses(bench: Bench, todo: Job, tuned: Tuned, rows: Sequence[Ids]) -> list[float]:
    """Each window's loss with what is attached in use.

    Raises:
        UserError: a window has no room beside the context.
    """
    left, needed = room(bench, tuned.positions), len(rows[0]) + sum(map(len, edges(bench.tokenizer)))
    if left is not None and left < needed:
        raise UserError(f"its context leaves {left} of the model's positions, and a window takes {needed}")
    bos = questions.in_front(todo.arm, tuned) is None
    return [float(one) for one in window_losses(bench.model, rows, bench.tokenizer, bos=bos)]


def _bare(bench: Bench, rows: Sequence[Ids]) -> list[float]:
    """The losses of the model as it is, once in a process."""
    found = bench.other[bench.plan.forgetting][1]
    if not found:
        found += [float(one) for one in window_losses(bench.model, rows, bench.tokenizer)]
    return found


def _kept(asked: Windows, todo: Job, folder: Path) -> Json | None:
    found = run_folder.finished(folder, todo.id, FILE)
    return found if found is not None and found.get("of") == _of(asked) else None


def _of(asked: Windows) -> Json:
    return {"text": asked.sha256, "windows": len(asked.rows), "tokens": len(asked.rows[0]) if asked.rows else 0}


def _none(reason: str) -> Json:
    return {"before": None, "after": None, "changes": None, "reason": reason}


def summary(bench: Bench) -> Json | None:
    """What results say of the text and of what is measured on it; None where nothing is asked for."""
    asked = windows(bench)
    if asked is None:
        return None
    name = Path(bench.plan.forgetting).name or "bundled English prose"
    return {"path": name, **_of(asked), "loss": LOSSES[bench.kind], "reason": asked.reason}


def of_arm(runs: Sequence[Mapping[str, Any]]) -> Json | None:
    """The change in nats a token, the mean over seeds, and its standard error over windows (None of a single one).

    None where nothing was asked for. A run without a figure leaves its arm without one.
    """
    found = [run.get("forgetting") for run in runs]
    every = [one for one in found if one is not None]
    if not every or len(every) < len(found):
        return None
    missing = next((one["reason"] for one in every if one["changes"] is None), None)
    if missing is not None:
        return {"change": None, "error": None, "reason": missing}
    means = [fmean(of_window) for of_window in zip(*(one["changes"] for one in every), strict=True)]
    error = stdev(means) / len(means) ** 0.5 if len(means) > 1 else None
    return {"change": fmean(means), "error": error, "reason": ""}
