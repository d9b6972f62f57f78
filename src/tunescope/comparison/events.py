"""What a comparison tells while it runs, as events that can be read and not changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tunescope.trial.bench import Bench
from tunescope.trial.chat_day import on_day_told
from tunescope.trial.command import command
from tunescope.trial.provenance import model_of


@dataclass(frozen=True)
class Place:
    """Which run: the arm, its learning rate (None where nothing is trained), its seed; tests: whether test rows too.

    rates: of each method that is trained; `rate` is the first's.
    """

    arm: str
    rate: float | None
    seed: int
    tests: bool
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """For a log: arm/lr 0.001 seed 0, or lr 0.05+0.005 of two methods."""
        return f"{self.arm}/{told(self.rates)}seed {self.seed}"


def told(rates: Sequence[float]) -> str:
    """The words "lr 0.05+0.005 ", or nothing where nothing is trained."""
    return f"lr {'+'.join(f'{rate:g}' for rate in rates)} " if rates else ""


@dataclass(frozen=True)
class Begun:
    """The comparison, before its first step. folder: of the run. question: what is asked, without paths."""

    folder: Path
    name: str
    question: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A run after a step: the training loss, the best development score so far, None before the first."""

    place: Place
    step: int
    steps: int
    loss: float
    best: float | None


@dataclass(frozen=True)
class Ended:
    """A run that is over, or was found finished: status, scores of the test rows, curve of (step, loss, dev).

    seconds, memory_mb: None for a run that did not finish.
    """

    place: Place
    status: str
    reason: str
    dev: float | None
    test: Mapping[str, float]
    curve: Sequence[tuple[int, float | None, float | None]]
    seconds: float | None
    memory_mb: float | None


@dataclass(frozen=True)
class Concluded:
    """The verdict with its sentences; arm -> (score, low, high); the best arm's artifact, where there is one."""

    answer: str
    sentences: tuple[str, ...]
    scores: Mapping[str, tuple[float, float, float]]
    best: str | None
    artifact: Path | None


def begun(folder: Path, bench: Bench) -> Begun:
    plan, task = bench.plan, bench.task
    question = {
        "command": command(on_day_told(bench)),
        "model": model_of(bench)["name"],
        "task": task.kind,
        "metric": task.metric,
        "steps": plan.settings.steps,
        "batch_size": plan.settings.batch_size,
        "budgets": ", ".join(map(str, plan.budgets)),
        "seeds": ", ".join(map(str, plan.seeds)),
    }
    return Begun(folder, folder.resolve().name, MappingProxyType(question))


def ended(place: Place, outcome: Mapping[str, Any]) -> Ended:
    """An arm run's outcome as an event."""
    curve = tuple((int(one["step"]), one.get("loss"), one.get("dev")) for one in outcome.get("curve") or ())
    return Ended(
        place=place,
        status=str(outcome["status"]),
        reason=str(outcome.get("reason") or ""),
        dev=outcome.get("dev"),
        test=MappingProxyType(dict(outcome.get("test") or {})),
        curve=curve,
        seconds=outcome.get("seconds"),
        memory_mb=outcome.get("memory_mb"),
    )


def concluded(folder: Path, results: Mapping[str, Any]) -> Concluded:
    """results.json as an event."""
    scores = {
        str(arm["name"]): (float(arm["score"]), float(arm["interval"][0]), float(arm["interval"][1]))
        for arm in results["arms"]
        if arm.get("score") is not None and arm.get("interval")
    }
    best, verdict = results.get("best") or {}, results["verdict"]
    return Concluded(
        answer=str(verdict["answer"]),
        sentences=tuple(map(str, verdict["sentences"])),
        scores=MappingProxyType(scores),
        best=best.get("arm"),
        artifact=folder / str(best["path"]) if best.get("path") else None,
    )


def safe(name: str) -> str:
    """A name that every logger takes: letters, digits, "_", "-", ".", blanks and "/"."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)[:200]
