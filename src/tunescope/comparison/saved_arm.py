"""An arm of a run as it lies on the disk, on its model again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunescope.attachment.tuned import Tuned
from tunescope.comparison import saved_artifact
from tunescope.comparison.job import Job
from tunescope.comparison.problem import attached
from tunescope.search.apply import with_found
from tunescope.search.search import Found
from tunescope.system import run_folder, sealed_json
from tunescope.trial.bench import Bench


@contextmanager
def attached_again(bench: Bench, todo: Job, folder: Path) -> Iterator[tuple[Bench, Tuned]]:
    """The bench, with the words that a search found, and what the arm has saved, attached."""
    from tunescope.attachment.artifact_folder import load

    saved = saved_artifact.place(folder, todo.id)
    if todo.arm.search is not None:
        before = sealed_json.read(saved.parent / "result.json", may_lack=run_folder.is_unsealed(folder))
        bench = with_found(bench, Found(**before["found"]))
    with attached(bench, todo, load(saved) if saved.exists() else ()) as tuned:
        yield bench, tuned
