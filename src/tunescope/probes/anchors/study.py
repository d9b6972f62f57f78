"""`tunescope anchors`: demonstrations drawn, put in front of test rows, and looked into, section by section."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.probes.anchors.draws import Draws
from tunescope.probes.anchors.prompts import Prompt, check_room, choices
from tunescope.probes.anchors.round import Round
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.report.finding import Finding
from tunescope.system import machine, plugins
from tunescope.system.say import say
from tunescope.tasks.prompts.spans import spans
from tunescope.tasks.task import labelled
from tunescope.trial.bench import Bench
from tunescope.trial.open import open_bench
from tunescope.trial.plan import Plan

Say = Callable[[str], None]


@dataclass(frozen=True)
class AnchorRequest:
    """What was typed. plan: model, data, task, and the seeds of the draws. k: demonstrations of each class.

    rows: test rows, 0 for all. only: sections, () for all.
    """

    plan: Plan
    k: int = 1
    rows: int = 100
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Studied:
    """findings: by section. draws: what was measured. facts: on what."""

    findings: dict[str, Finding]
    draws: dict[str, list[dict[str, Any]]]
    facts: dict[str, Any]


def study(request: AnchorRequest, say: Say = say, folder: Path | None = None) -> Studied:
    """Every section over all draws; one that was not asked for by name and cannot be had of this model is left out.

    Where none can be had, the last one's reason is raised. folder: keeps each section of each draw as it ends, and one
    that is kept there already is not measured again.

    Raises UserError for an encoder, a task without label words, too few rows of a class, and prompts that do not fit.
    """
    chosen = [plugins.checked_name(DEMONSTRATIONS, name, "section") for name in request.only] or plugins.names(
        DEMONSTRATIONS
    )
    modules = {name: plugins.load(DEMONSTRATIONS, name) for name in chosen}
    chosen.sort(key=lambda name: modules[name].ORDER)
    bench = open_bench(request.plan)
    rounds = list(rounds_of(request, bench))
    kept = Draws(folder, _depends_on(request, bench))
    draws: dict[str, list[dict[str, Any]]] = {}
    findings: dict[str, Finding] = {}
    left_out: list[str] = []
    for name in chosen:
        section = modules[name]
        started = time.monotonic()
        try:
            draws[name] = [kept.of(name, one.seed, partial(section.measure, one)) for one in rounds]
        except UserError as problem:
            if request.only or (name == chosen[-1] and not findings):
                raise
            left_out.append(f"{name}: {problem}")
            say(f"left out, {left_out[-1]}")
            continue
        findings[name] = section.finding(draws[name])
        say(f"{name}: {len(rounds)} draws in {time.monotonic() - started:.0f} s")
    return Studied(findings, draws, _facts(request, bench, rounds) | {"left out": "; ".join(left_out) or "nothing"})


def _depends_on(request: AnchorRequest, bench: Bench) -> dict[str, Any]:
    return {
        "task": bench.task.describe(),
        "data": dict(bench.sha256),
        "base": bench.fingerprint,
        "device": bench.device.type,
        "k": request.k,
        "rows": request.rows,
        "tunescope": version("tunescope"),
    }


def rounds_of(request: AnchorRequest, bench: Bench) -> Iterator[Round]:
    """A round for every seed.

    Raises UserError as `study` does.
    """
    kind = bench.kind
    if not bench.task.in_words:
        raise UserError("Anchors are label words: the task must be a classification answered in words, by a decoder.")
    if request.rows < 0:
        raise UserError(f"--rows is {request.rows}; give how many test rows are asked, or 0 for all.")
    task = labelled(bench.task)
    words = choices(task.word_ids(bench.tokenizer, kind))
    test = bench.splits.test
    some = Random(0).sample(range(len(test)), min(request.rows or len(test), len(test)))
    rows = [test[index] for index in sorted(some)]
    queries = task.encode(rows, bench.tokenizer, model_kind=kind, bos=False)
    told_apart = replace(words, lead=queries[0].lead + words.lead)
    for seed in request.plan.seeds:
        found = spans(bench.tokenizer, task.demonstrated(bench.splits.train, request.k, seed))
        prompts = [Prompt(found, query) for query in queries]
        check_room(bench.model, prompts, len(told_apart.lead))
        yield Round(bench.model, bench.tokenizer, told_apart, task.labels, prompts, seed)


def _facts(request: AnchorRequest, bench: Bench, rounds: Sequence[Round]) -> dict[str, Any]:
    gold = rounds[0].gold.bincount(minlength=len(rounds[0].labels))
    accuracy = [float((one.predicted == one.gold).double().mean()) for one in rounds]
    return {
        "model": model_name(request.plan.model),
        "attached": f"{request.k} demonstration{'s' * (request.k != 1)} a class",
        "data": shown(request.plan.data["train"]),
        "rows": len(rounds[0].prompts),
        "draws": len(rounds),
        "template": bench.task.template,
        "label words": ", ".join(labelled(bench.task).words.values()),
        "commonest label": round(float(gold.max() / gold.sum()), 3),
        "accuracy of each draw": ", ".join(f"{one:.3f}" for one in accuracy),
        "notes": "; ".join(dict.fromkeys(note for one in rounds for note in one.prompts[0].spans.notes)) or "none",
        **machine.versions(),
    }
