"""Which development rows are scored while a run trains, so that scores take no more than a stated share of it.

Counted in passes of the model, before anything is timed: a trained row takes two, forward and back through the
activations of a frozen model, a scored row one, and a written answer two. Where the scores of all development rows
would take more than their share, those while it trains are of fewer rows, each label in its share and the same in
every run, and the tensors that are kept are scored on all of them at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from tunescope.data.splits import key_of
from tunescope.tasks.task import Encoded, Labelled

if TYPE_CHECKING:
    from tunescope.trial.bench import Bench

TRAINED = 2
WRITTEN = 2
LEAST = 32  # rows: of fewer a score says nothing, so a very short run may spend a larger share


def early_rows(bench: Bench, steps: int) -> tuple[int, ...] | None:
    """The questions, by number, that are scored while a run of so many steps trains; None: all of them, each time.

    Rows with one input and several references are one question.
    """
    rows, count = bench.splits.dev, early_size(bench, steps)
    if count is None:
        return None
    fields, every = bench.task.fields(), asked(bench, "dev")
    keys = [key_of(row, fields) for row in rows] if len(every) == len(rows) else [one.source for one in every]
    labels = [bench.task.label_of(row, i) for i, row in enumerate(rows)] if isinstance(bench.task, Labelled) else None
    return drawn(keys, labels or [""] * len(keys), count)


def asked(bench: Bench, part: str) -> list[Encoded]:
    """What is asked of a part, without anything in front: as many as any arm is asked."""
    return bench.encoded(part, room=None)


def early_size(bench: Bench, steps: int) -> int | None:
    """How many they are; None: all."""
    plan = bench.plan
    if plan.dev_share is None or plan.pilot_of is not None:
        return None
    rows = len(asked(bench, "dev"))
    every, labelled = plan.settings.eval_every, isinstance(bench.task, Labelled)
    count = early_count(rows, steps, plan.settings.batch_size, every, plan.dev_share, labelled)
    return count if count < rows else None


def early_count(rows: int, steps: int, batch_size: int, eval_every: int, share: float, labelled: bool) -> int:
    """How many of the development rows: all, or what the share leaves beside all of them once at the end."""
    scores, each = -(-steps // eval_every), 1 if labelled else WRITTEN
    if share >= 1:
        return rows
    passes = share / (1 - share) * TRAINED * steps * batch_size
    if scores * rows * each <= passes:
        return rows
    return min(rows, max(LEAST, int((passes / each - rows) // scores)))


def drawn(keys: Sequence[str], labels: Sequence[str], count: int) -> tuple[int, ...]:
    """So many rows, each label in its share (largest remainders), of a label those whose keys have the least hashes."""
    counts = Counter(labels)
    shares = {label: count * held / len(keys) for label, held in counts.items()}
    taken = {label: int(share) for label, share in shares.items()}
    left = sorted(counts, key=lambda label: (taken[label] - shares[label], label))
    for label in left[: count - sum(taken.values())]:
        taken[label] += 1
    order = sorted(range(len(keys)), key=lambda row: (sha256(keys[row].encode()).hexdigest(), row))
    chosen = [row for label in counts for row in [row for row in order if labels[row] == label][: taken[label]]]
    return tuple(sorted(chosen))


def rule(bench: Bench) -> str:
    """The rule as it works out here, for the record; "" where every score is of all rows."""
    seen = bench.at(bench.plan.seeds[0])
    some = early_size(seen, bench.plan.settings.steps)
    if some is None:
        return ""
    whole = len(asked(seen, "dev"))
    return f"while a run trains {some:,} of the {whole:,} development rows are scored, at its end all"
