"""Which rows are cut out of a file for dev and test so that every part has its share of each label."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from tunescope.data.row import every_row

LabelOf = Callable[[Mapping[str, Any], int], str]
Groups = Sequence[tuple[str, int]]


def labels_of(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], label_of: LabelOf) -> dict[str, str]:
    """Key -> the label that most of its rows have, of several the first by name: the rows' order is nothing to it."""
    counts: dict[str, Counter[str]] = {}
    for key, label in zip(keys, every_row(rows, label_of), strict=True):
        counts.setdefault(key, Counter())[label] += 1
    return {key: min(found, key=lambda label: (-found[label], label)) for key, found in counts.items()}


def by_label(groups: Groups, labels: Mapping[str, str], wanted: Sequence[str], size: int) -> dict[str, str]:
    """Key -> the part, of `wanted`, that it is cut out for; the others are left to train on.

    A part takes groups, in their order, until it has `size` rows: one of each label first, the commonest labels before
    the others, and then of the label that has the least of its share. The last group of a label stays in train. Where a
    label has too few groups for all parts the last part comes before the others, as the one that is told.

    Args:
        groups: key and number of rows of each group of rows that stay together.
        labels: key -> label.
    """
    waiting: dict[str, deque[tuple[str, int]]] = {}
    counts: Counter[str] = Counter()
    for key, members in groups:
        waiting.setdefault(labels[key], deque()).append((key, members))
        counts[labels[key]] += members
    share = size / counts.total()
    part_of: dict[str, str] = {}
    for later, name in reversed(list(enumerate(wanted))):
        has, taken = 0, Counter[str]()
        order = [(False, -share * count, label) for label, count in counts.items()]
        heapify(order)
        while order and has < size:
            label = heappop(order)[-1]
            if len(waiting[label]) <= (1 + later if taken[label] else 1):  # train's, and one for each part to come
                continue
            key, members = waiting[label].popleft()
            part_of[key], has = name, has + members
            taken[label] += members
            heappush(order, (True, taken[label] - share * counts[label], label))
    return part_of
