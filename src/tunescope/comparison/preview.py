"""`tunescope check` in words: what is in the data, and what a comparison would take."""

from collections.abc import Iterator
from typing import Any

from tunescope.comparison import other_text
from tunescope.comparison.estimate import HOW, Estimate, estimates
from tunescope.comparison.progress import duration
from tunescope.trial.bench import Bench
from tunescope.trial.facts import facts_of, notes_of


def lines(bench: Bench) -> Iterator[str]:
    """Line by line, since the estimates take a while."""
    other_text.windows(bench)
    facts = facts_of(bench)
    yield from (f"note: {note}" for note in bench.splits.notes)
    for name, part in facts.parts.items():
        yield f"{name}: {part.rows:,} rows; input tokens {_lengths(part.inputs)}" + (
            f"; target tokens {_lengths(part.targets)}" if part.targets else ""
        )
        if part.labels:
            yield "  labels: " + ", ".join(f"{label} {count:,}" for label, count in part.labels.items())
    if facts.positions:
        yield f"the model takes {facts.positions:,} tokens, its context included"
    for label, tokens in (facts.words or {}).items():
        yield f"label word of {label!r}: {' '.join(tokens)} ({len(tokens)} token{'s' * (len(tokens) > 1)})"
    yield from (f"note: {note}" for note in notes_of(bench) if note not in bench.splits.notes)
    yield from _estimated(bench)


def _lengths(found: Any) -> str:
    return f"{found.min} to {found.max} (middle {found.median}, 95 % up to {found.p95})"


def _estimated(bench: Bench) -> Iterator[str]:
    plan, whole = bench.plan, 0.0
    past = f" and up to {plan.past} past their ends" if plan.past else ""
    yield (
        f"a comparison of {len(plan.seeds)} seeds, {len(plan.rates) or plan.trials} learning rates{past} and "
        f"{plan.settings.steps} steps of {plan.settings.batch_size} rows, with 1 worker:"
    )
    for one in estimates(bench):
        yield f"  {_line(one)}"
        whole += one.total_seconds
    yield f"  together at most {duration(whole)}{', before seeds that are added' if plan.max_seeds else ''}"
    yield HOW


def _line(one: Estimate) -> str:
    if one.problem:
        return f"{one.arm}: {one.problem}"
    step = f"{one.step_seconds * 1000:.0f} ms a step, " if one.step_seconds else ""
    return (
        f"{one.arm}: {one.parameters:,} parameters, {step}{duration(one.total_seconds)}, "
        f"{one.memory_mb:.0f} MB beside the model"
    )
