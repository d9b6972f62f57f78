"""What is asked of `tunescope anchors`, and the draws of demonstrations that are looked into for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tunescope import __version__
from tunescope.errors import UserError
from tunescope.probes.anchors.prompts import Prompt, check_room, choices
from tunescope.probes.anchors.round import Round
from tunescope.tasks.prompts.demonstrations import joined
from tunescope.tasks.prompts.spans import spans
from tunescope.tasks.task import labelled
from tunescope.trial.bench import Bench
from tunescope.trial.chats import check_turns
from tunescope.trial.identity import asked_with
from tunescope.trial.plan import Plan


@dataclass(frozen=True)
class AnchorRequest:
    """What was typed. plan: model, data, task, and the seeds of the draws. k: demonstrations of each class.

    rows: test rows, 0 for all. only: sections, () for all.
    """

    plan: Plan
    k: int = 1
    rows: int = 100
    only: tuple[str, ...] = ()


def depends_on(request: AnchorRequest, bench: Bench) -> dict[str, Any]:
    """All that the numbers of a section of a draw depend on, but for these two."""
    return {
        "task": bench.task.describe(),
        "data": dict(bench.sha256),
        "base": bench.fingerprint,
        **asked_with(bench),
        "device": bench.device.type,
        "k": request.k,
        "rows": request.rows,
        "tunescope": __version__,
    }


def rounds_of(request: AnchorRequest, bench: Bench) -> Iterator[Round]:
    """A round for every seed.

    Raises UserError for an encoder, a task without label words, too few rows of a class, and prompts that do not fit.
    """
    kind = bench.kind
    if not bench.task.in_words:
        raise UserError("Anchors are label words: the task must be a classification answered in words, by a decoder.")
    check_turns(bench, "anchors")
    if request.rows < 0:
        raise UserError(f"--rows is {request.rows}; give how many test rows are asked, or 0 for all.")
    task = labelled(bench.task)
    words = choices(task.word_ids(bench.tokenizer, kind))
    test = bench.splits.test
    some = Random(0).sample(range(len(test)), min(request.rows or len(test), len(test)))
    rows = [test[index] for index in sorted(some)]
    shown = joined(task.demonstrated(bench.splits.train, request.k, request.plan.seeds[0]))  # any of which ends alike
    queries = task.encode(rows, bench.tokenizer, model_kind=kind, behind=shown)
    told_apart = replace(words, lead=queries[0].lead + words.lead)
    for seed in request.plan.seeds:
        found = spans(bench.tokenizer, task.demonstrated(bench.splits.train, request.k, seed), bench.task.begins)
        prompts = [Prompt(found, query) for query in queries]
        check_room(bench.model, prompts, len(told_apart.lead))
        yield Round(bench.model, bench.tokenizer, told_apart, task.labels, prompts, seed)
