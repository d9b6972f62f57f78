"""What came of an arm run, as result.json has it: done, paused, or stopped with a reason."""

from collections.abc import Sequence
from typing import Any

from tunescope.comparison.job import Job
from tunescope.trial.train.state import State

# Of every run id, spec, learning_rate (of the first method), learning_rates (of each), seed, status, reason and dev; of
# one that is done also steps, seconds, memory_mb, curve, best_step, cut, demonstrations and the hash of its artifact;
# of one that was tested its stats.
Outcome = dict[str, Any]
KEPT = ("done", "diverged")  # the others may go well another time


def done(todo: Job, dev: float | None, steps: int, seconds: float, memory: float, curve: Sequence[Any]) -> Outcome:
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
    rates = {"learning_rate": todo.rate, "learning_rates": todo.each_rate}
    return {"id": todo.id, "spec": todo.arm.label, **rates, "seed": todo.seed}


def stopped(todo: Job, status: str, reason: object) -> Outcome:
    """The outcome of a run without a score."""
    return {**_header(todo), "status": status, "reason": str(reason), "dev": None}


def paused(todo: Job, state: State, memory: float) -> Outcome:
    """What is known of a run that may go on; it is told, and not kept."""
    known = done(todo, state.best_score, state.step, state.seconds, memory, state.curve)
    return known | {"status": "paused", "reason": f"at step {state.step} of {todo.steps}, dev {state.best_score:.4g}"}
