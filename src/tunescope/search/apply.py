"""A found prompt put to use: the bench with its template and words, its text as an artifact, its score on rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from tunescope.attachment.attached import attach
from tunescope.attachment.initial_artifacts import initialised
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact
from tunescope.methods.contexts.text import Text
from tunescope.search.search import Found
from tunescope.system import shell
from tunescope.system.label_pairs import typed
from tunescope.tasks.task import Encoded, Task, changed
from tunescope.trial.bench import Bench, room
from tunescope.trial.chats import said

if TYPE_CHECKING:
    from tunescope.attachment.attached import Attached

Stats = list[list[float]]


def with_found(bench: Bench, found: Found) -> Bench:
    """The bench with the template and the label words that were found.

    Raises:
        UserError: they cannot be used with the bench's tokenizer.
    """
    names = {field.name for field in fields(cast(Any, bench.task))}
    changes = {"template": found.template, "words": dict(found.words)}
    changes = {name: value for name, value in changes.items() if name in names and getattr(bench.task, name) != value}
    if not changes:
        return bench
    task = changed(bench.task, **changes)
    task = task.prepare(bench.splits.parts(), bench.tokenizer, model_kind=bench.kind)
    return replace(bench, task=task, rows={})


def made(bench: Bench, text: str) -> Artifact | None:
    """The text in front of the bench's rows as an artifact for its model; None for no text.

    Raises:
        UserError: the tokenizer has no token for a part of it.
    """
    if not text:
        return None

    (artifact,) = initialised(bench.model, [Text(text=said(bench, text))], bench.tokenizer, 0)
    unknown = bench.tokenizer.unk_token_id  # OPT's is its start token, which stands in front of every text
    if unknown is not None and unknown in bench.tokenizer(text, add_special_tokens=False)["input_ids"]:
        raise UserError(f"the tokenizer has no token for a part of the prompt {text!r}.")
    return artifact


def shown(found: Found, task: Task) -> str:
    """The words in front, in quotes as JSON has them, so that no blank is lost; and the template and label words where
    they are not the task's, as they are typed."""
    parts = [json.dumps(found.text, ensure_ascii=False)] if found.text else []
    if found.template != getattr(task, "template", found.template):
        parts.append(f"--template {shell.word(found.template)}")
    if dict(found.words) != dict(getattr(task, "words", found.words)):
        parts.append(typed(found.words))
    return " ".join(parts) or "nothing changed"


def stats_of(bench: Bench, text: str, part: str = "test") -> Stats:
    """The metric's statistics of each row of a part, behind the text or behind nothing."""
    return stats_behind(bench, made(bench, text), part)


def stats_behind(bench: Bench, artifact: Artifact | None, part: str) -> Stats:
    """The metric's statistics of each row of a part, with the artifact attached or with nothing."""
    with _rows_behind(bench, artifact, part) as rows:
        return [list(one.stats) for one in bench.task.predict(bench.model, rows, bench.tokenizer)]


def cut_behind(bench: Bench, text: str) -> dict[str, int]:
    """How many development and test rows are cut to the model's positions beside the text; none are left out."""
    found: dict[str, int] = {}
    for part in ("dev", "test"):
        with _rows_behind(bench, made(bench, text), part) as rows:
            found[part] = sum(row.cut > 0 for row in rows)
    return {part: count for part, count in found.items() if count}


@contextmanager
def _rows_behind(bench: Bench, artifact: Artifact | None, part: str) -> Iterator[list[Encoded]]:
    """The rows of a part as they are asked behind the artifact, which is attached, or behind nothing."""
    attached: AbstractContextManager[Attached | None] = nullcontext()
    if artifact is not None:
        attached = attach(bench.model, artifact, tokenizer=bench.tokenizer)
    behind = artifact.spec.text if artifact is not None and isinstance(artifact.spec, Text) else None
    with attached as tuned:
        yield bench.encoded(part, behind=behind, room=room(bench, tuned.positions if tuned else 0))
