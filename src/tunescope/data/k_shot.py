"""The few-shot protocol: K training and K development rows a class, drawn several times, and the whole test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tunescope.data.row import every_row
from tunescope.data.splits import KeptRows, Rows, Splits, key_of, keys_of
from tunescope.errors import UserError

SEEDS = (13, 21, 42, 87, 100)  # of the five draws in Gao et al. 2021 (LM-BFF, arXiv:2012.15723), section 3
K = 16


def k_shot(
    rows: Rows,
    test: Rows,
    label_of: Callable[[Mapping[str, Any], int], str],
    by: Sequence[str],
    *,
    k: int = K,
    seed: int = SEEDS[0],
) -> Splits:
    """`k` rows of each label to train on and as many others to choose by, drawn from `rows`; `test` as it is.

    Rows equal in the fields `by` count once, so none is in both parts; those with several labels are left out. What is
    drawn depends on the rows and the seed, never on the rows' order. The draw is ours: the seeds are the paper's, its
    rows are not.

    Args:
        label_of: a row and its index -> its label, as `Classification.label_of`.

    Raises:
        UserError: k is below 1, or a label has fewer than 2 k different rows.
    """
    if k < 1:
        raise UserError(f"k_shot(k={k}) must be at least 1. Type: k=16")
    keys = keys_of(rows, by, seed)
    labels: dict[str, set[str]] = {}
    for key, label in zip(keys, every_row(rows, label_of), strict=True):
        labels.setdefault(key, set()).add(label)
    distinct: dict[str, dict[str, Mapping[str, Any]]] = {label: {} for one in labels.values() for label in one}
    for key, row in sorted(zip(keys, rows, strict=True), key=lambda pair: key_of(pair[1], None, seed)):
        if len(labels[key]) == 1:
            distinct[next(iter(labels[key]))].setdefault(key, row)
    train: KeptRows = []
    dev: KeptRows = []
    for label, members in sorted(distinct.items()):
        if len(members) < 2 * k:
            raise UserError(
                f"{k} training and {k} development rows of each label are asked for, and label '{label}' has "
                f"{len(members)} different rows. {_allowed(distinct)}"
            )
        drawn = [members[key] for key in sorted(members)]
        train, dev = train + drawn[:k], dev + drawn[k : 2 * k]
    notes = [f"{k} rows of each label to train on and {k} others to choose by, drawn from {len(rows)} by seed {seed}."]
    if several := sum(len(one) > 1 for one in labels.values()):
        notes.append(f"{several} inputs with more than one label are not drawn.")
    return Splits(train, dev, list(test), tuple(notes))


def _allowed(distinct: Mapping[str, Mapping[str, Any]]) -> str:
    rarest = min(distinct, key=lambda label: len(distinct[label]))
    most = len(distinct[rarest]) // 2
    if most:
        return f"Allowed: 1 to {most}."
    return f"No number of them is allowed: '{rarest}' has fewer than 2. Give it more, or leave its rows out."


def k_shots(
    rows: Rows,
    test: Rows,
    label_of: Callable[[Mapping[str, Any], int], str],
    by: Sequence[str],
    *,
    k: int = K,
    seeds: Sequence[int] = SEEDS,
) -> dict[int, Splits]:
    """Seed -> its `k_shot`; the notes of each tell of all."""
    found = {seed: k_shot(rows, test, label_of, by, k=k, seed=seed) for seed in seeds}
    if len(found) == 1:
        return found
    drawn = f"{k} rows of each label to train on and {k} others to choose by, drawn from {len(rows)} anew by each seed."
    return {seed: replace(one, notes=(drawn, *one.notes[1:])) for seed, one in found.items()}
