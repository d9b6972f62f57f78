"""`tunescope anchors`: demonstrations drawn, put in front of test rows, and looked into, section by section."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunescope.data.corpus_name import shown
from tunescope.errors import UserError
from tunescope.models.load import model_name
from tunescope.probes.anchors import far_draws
from tunescope.probes.anchors.draws import Draws
from tunescope.probes.anchors.request import AnchorRequest, depends_on, rounds_of
from tunescope.probes.anchors.round import Round
from tunescope.probes.names import DEMONSTRATIONS
from tunescope.report.finding import Finding
from tunescope.system import machine, plugins
from tunescope.system.executors.local import Local
from tunescope.system.lock import locked
from tunescope.system.pieces import Place
from tunescope.system.say import say
from tunescope.tasks.task import labelled
from tunescope.trial.bench import Bench
from tunescope.trial.chat_day import on_its_day
from tunescope.trial.open import open_bench
from tunescope.trial.provenance import of_template

Say = Callable[[str], None]
INTERVALS = (
    "in brackets, where a table says no other, Student's 95 % interval of the mean over draws; a band about a curve "
    "is from the least draw to the most"
)


@dataclass(frozen=True)
class Studied:
    """findings: by section. draws: what was measured. facts: on what."""

    findings: dict[str, Finding]
    draws: dict[str, list[dict[str, Any]]]
    facts: dict[str, Any]


def study(request: AnchorRequest, say: Say = say, folder: Path | None = None, place: Place | None = None) -> Studied:
    """Every section over all draws, or those asked for; one that cannot be had of this model is left out and told.

    Where none can be had, the last one's reason is raised. folder: keeps each section of each draw as it ends, and one
    that is kept there already is not measured again. place: where they are measured, with a folder; in this process
    unless it is given.

    Raises:
        Submitted: the executor has a queue that is not waited for; the same command goes on.
        UserError: the folder is in use, an encoder, a task without label words, too few rows of a class, or prompts
            that do not fit.
    """
    request = replace(request, plan=on_its_day(request.plan))
    with nullcontext() if folder is None else locked(folder, say), machine.threads(request.plan.threads):
        return _held(request, say, folder, place or Place(Local(), 1))


def _held(request: AnchorRequest, say: Say, folder: Path | None, place: Place) -> Studied:
    """Everything between the question and the findings, in a folder that this process holds alone."""
    chosen = [plugins.checked_name(DEMONSTRATIONS, name, "section") for name in request.only] or plugins.names(
        DEMONSTRATIONS
    )
    chosen.sort(key=lambda name: plugins.load(DEMONSTRATIONS, name).ORDER)
    bench = open_bench(request.plan)
    for told in of_template(request.plan.task.get("template")):
        say(f"note: {told}")
    rounds = list(rounds_of(request, bench))
    kept = Draws(folder, depends_on(request, bench))
    refused = far_draws.refused(request, bench, chosen, kept, place, say)
    draws: dict[str, list[dict[str, Any]]] = {}
    findings: dict[str, Finding] = {}
    left_out: list[str] = []
    for name in chosen:
        started = time.monotonic()
        try:
            draws[name] = [_measured(name, one, kept, refused) for one in rounds]
        except UserError as problem:
            if name == chosen[-1] and not findings:
                raise
            left_out.append(f"{name}: {problem}")
            say(f"left out, {left_out[-1]}")
            continue
        findings[name] = plugins.load(DEMONSTRATIONS, name).finding(draws[name])
        if not place.hands_out(len(rounds)):
            say(f"{name}: {len(rounds)} draws in {time.monotonic() - started:.0f} s")
    return Studied(findings, draws, _facts(request, bench, rounds) | {"left out": "; ".join(left_out) or "nothing"})


def _measured(section: str, round: Round, kept: Draws, refused: Mapping[str, str]) -> dict[str, Any]:
    """As kept, or measured now. refused: by name, why a section of a draw cannot be had."""
    if reason := refused.get(kept.name(section, round.seed)):
        raise UserError(reason)
    return kept.of(section, round.seed, lambda: plugins.load(DEMONSTRATIONS, section).measure(round))


def _facts(request: AnchorRequest, bench: Bench, rounds: Sequence[Round]) -> dict[str, Any]:
    gold = rounds[0].gold.bincount(minlength=len(rounds[0].labels))
    accuracy = [float((one.predicted == one.gold).double().mean()) for one in rounds]
    return {
        "model": model_name(request.plan.model),
        "attached": f"{request.k} demonstration{'s' * (request.k != 1)} a class",
        "data": shown(request.plan.data["train"]),
        "rows": len(rounds[0].prompts),
        "draws": len(rounds),
        **({"intervals": INTERVALS} if len(rounds) > 1 else {}),
        "template": bench.task.template,
        "label words": ", ".join(labelled(bench.task).words.values()),
        "commonest label": round(float(gold.max() / gold.sum()), 3),
        "accuracy of each draw": ", ".join(f"{one:.3f}" for one in accuracy),
        "notes": "; ".join(dict.fromkeys(note for one in rounds for note in one.prompts[0].spans.notes)) or "none",
        **machine.versions(),
    }
