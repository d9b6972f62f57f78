"""A task of lm-evaluation-harness as rows in files of ours: its texts and answers, without its few-shot prompts.

The harness makes each prompt itself, so a task's `!function`s run as they do there: code of the harness, or of the
folder that the user has named. Tasks are taken by their names in these two places and from nowhere else.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunescope.errors import UserError
from tunescope.exchange.harness.entry import check_installed
from tunescope.exchange.harness.questions import Question, questions
from tunescope.system import files

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks import TaskManager

PLACE = Path("runs") / "lm_eval"
PARTS = ("train", "dev", "test")
MOST = 50  # choices that all rows share, to be labels


@dataclass(frozen=True)
class Taken:
    """A harness task as a comparison takes it.

    data: part -> file. task: the kind of task and its fields. notes: what was done, and what of it is not ours.
    """

    data: dict[str, str]
    task: dict[str, Any]
    notes: tuple[str, ...]


def taken(name: str, include: str | None = None, place: Path = PLACE) -> Taken:
    """The rows of the task of that name, in files of a folder that is named by what they hold.

    include: a folder with tasks of the user's own, as --include_path of the harness.

    Raises:
        UserError: the harness is not installed, has no such task, or the task asks what is no choice and no text.
    """
    check_installed()
    task = _loaded(name, include)
    asked = {part: questions(task, docs, f"{name}, {part}") for part, docs in _parts(task, name).items()}
    every = [one for rows in asked.values() for one in rows]
    if not every:
        raise UserError(f"lm_eval:{name} has no documents.")
    end = _end(every, name)
    kind, made = _as_labels(asked, end) or _as_choices(asked, end) or _as_texts(asked, end)
    notes = (*_notes(task, name, asked), *(("its few-shot prompts are not taken: compare demos:k=4 instead",)))
    contents = {f"{name.replace('/', '-')}.{part}.jsonl": _lines(rows) for part, rows in made.items()}
    said = {"task": name, "version": task.VERSION, "kind": kind, "notes": notes}
    digest = hashlib.sha256(json.dumps([said, contents], sort_keys=True, default=str).encode()).hexdigest()
    folder = place / f"{name.replace('/', '-')}-{digest[:8]}"
    if not folder.exists():
        files.make_folder(folder.parent)
        filled = files.beside(folder)
        filled.mkdir()
        try:
            for file, text in {**contents, "about.json": json.dumps(said, indent=1, default=str)}.items():
                files.write(filled / file, text.encode())
        except BaseException:
            files.remove(filled)
            raise
        files.put_first(filled, folder)  # another process's has the same in it, as the name tells
    return Taken({part: str(folder / file) for part, file in zip(made, contents, strict=True)}, kind, notes)


def _loaded(name: str, include: str | None) -> Any:
    """The harness's task; from the user's folder if it is there, else from the harness's own."""
    from lm_eval.tasks import TaskManager

    if include is not None and not Path(include).is_dir():
        raise UserError(f"--include-path {include} is no folder. Give the one that the task's YAML lies in.")
    found = TaskManager(include_path=include, include_defaults=False) if include else None
    if found is None or name not in found.all_subtasks:
        found = TaskManager(include_path=include)
    if name not in found.all_subtasks:
        raise UserError(_unknown(name, found))
    try:
        return found.load(name)["tasks"][name]
    except UserError:
        raise
    except Exception as problem:  # what a task's data and code raise is anything
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        raise UserError(f"lm_eval:{name} cannot be loaded by the harness: {reason}") from problem


def _unknown(name: str, manager: TaskManager) -> str:
    if name in manager.all_groups or name in manager.all_tags:
        return f"lm_eval:{name} is several tasks; name one of them. See: lm_eval ls subtasks"
    near = difflib.get_close_matches(name, manager.all_subtasks, n=1)
    return (
        f"lm-evaluation-harness has no task {name!r}."
        + (f" Did you mean lm_eval:{near[0]}?" if near else "")
        + " Of a folder of your own: --include-path FOLDER"
    )


def _parts(task: ConfigurableTask, name: str) -> dict[str, Iterable[Any]]:
    """Part -> the task's documents. What it has no training part for is trained on the part before its last."""
    own = {
        "train": task.training_docs() if task.has_training_docs() else None,
        "dev": task.validation_docs() if task.has_validation_docs() else None,
        "test": task.test_docs() if task.has_test_docs() else None,
    }
    there = {part: docs for part, docs in own.items() if docs is not None}
    if not there:
        raise UserError(f"lm_eval:{name} has no documents.")
    if "train" in there and "test" not in there and "dev" in there:
        there["test"] = there.pop("dev")  # as where the labels of the test part are not public
    if "train" not in there:
        there["train"] = there.pop(next(iter(there)))
    return {part: there[part] for part in PARTS if part in there}


def _end(rows: Sequence[Question], name: str) -> str:
    """What stands between every prompt and its answer: "" for a space, or the line end."""
    ends = {one.between for one in rows}
    if len(ends) > 1 or ends - {" ", "\n"}:
        raise UserError(
            f"lm_eval:{name}: its answers follow on {', '.join(map(repr, sorted(ends)))}, where ours follow on one "
            "space or a line end in all rows. Set target_delimiter in its YAML, in a folder for --include-path."
        )
    return "\n" if ends == {"\n"} else ""


def _as_labels(asked: Mapping[str, Sequence[Question]], end: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Rows for classification, where all have the same choices; None elsewhere."""
    sets = {one.choices for rows in asked.values() for one in rows}
    same = next(iter(sets))
    seen = {one.answers[0] for one in asked["train"]}
    if len(sets) > 1 or not 2 <= len(same) <= MOST or seen != set(same):
        return None
    made = {part: [{"text": one.prompt, "label": one.answers[0]} for one in rows] for part, rows in asked.items()}
    return {"kind": "classification", "template": "{text}" + end}, made


def _as_choices(asked: Mapping[str, Sequence[Question]], end: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Rows for the kind `choice`; None where answers are written."""
    if not all(one.choices for rows in asked.values() for one in rows):
        return None
    made = {
        part: [{"input": one.prompt, "choices": list(one.choices), "answer": one.answers[0]} for one in rows]
        for part, rows in asked.items()
    }
    return {"kind": "choice", "template": "{input}" + end}, made


def _as_texts(asked: Mapping[str, Sequence[Question]], end: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows for generation: an input with several references is several rows, which are decoded once."""
    made = {
        part: [{"input": one.prompt, "target": answer} for one in rows for answer in one.answers]
        for part, rows in asked.items()
    }
    return {"kind": "generation", "template": "{input}" + end}, made


def _notes(task: ConfigurableTask, name: str, asked: Mapping[str, Sequence[Question]]) -> list[str]:
    counts = ", ".join(f"{len(rows)} {part}" for part, rows in asked.items())
    notes = [f"lm_eval:{name}: {counts} rows"]
    if not task.has_training_docs():
        apart = task.has_validation_docs() and task.has_test_docs()  # of which the harness scores on the test part
        learned = "its validation part is trained on" if apart else "rows that the harness scores on are trained on"
        notes.append(f"it has no training part, so {learned}")
    if task.OUTPUT_TYPE == "generate_until":
        notes.append(
            "its stop words, filters and metrics are not taken: an answer ends as the targets do, see --metric"
        )
    return notes


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
