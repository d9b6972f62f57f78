"""What a person should know of the labels of rows before trusting a score of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tunescope.data.row import line_of
from tunescope.data.splits import as_read, key_of
from tunescope.system.label_pairs import typed
from tunescope.tasks.prompts.label_words import meant
from tunescope.tasks.task import Labelled, Rows

SHOWN = 5  # lines, or labels, named for each finding


def label_notes(task: Labelled, parts: Mapping[str, Rows]) -> list[str]:
    """Sentences on inputs with several labels, labels that are nearly one, those a part lacks, and bare numbers."""
    return [*_conflicts(task, parts), *_alike(task), *_missing(task, parts), *_numbers(task)]


def _conflicts(task: Labelled, parts: Mapping[str, Rows]) -> list[str]:
    """Rows whose input, in whatever part, stands with another label too."""
    keys = {name: [key_of(as_read(row, task.fields()), task.fields()) for row in rows] for name, rows in parts.items()}
    labels: dict[str, set[str]] = {}
    for name, rows in parts.items():
        for index, (row, key) in enumerate(zip(rows, keys[name], strict=True)):
            labels.setdefault(key, set()).add(task.label_of(row, index))
    notes = []
    for name, rows in parts.items():
        lines = [line_of(row, index) for index, row in enumerate(rows) if len(labels[keys[name][index]]) > 1]
        if lines:
            notes.append(
                f"{len(lines)} of {len(rows)} {name} rows have an input that stands with another label too "
                f"(lines {_some(map(str, lines))})."
            )
    return notes


def _alike(task: Labelled) -> list[str]:
    """Labels that differ only by case, blanks or forms of characters, or by how the same number is written."""
    groups: dict[str, list[str]] = {}
    for label in task.labels:
        groups.setdefault(meant(label), []).append(label)
    return [
        f"The labels {_some(map(repr, group))} differ by case, blanks, forms of characters or how a number is written "
        "only, and count as different ones."
        for group in groups.values()
        if len(group) > 1
    ]


def _missing(task: Labelled, parts: Mapping[str, Rows]) -> list[str]:
    """Labels without a row in a part."""
    notes = []
    for name, rows in parts.items():
        has = task.counts(rows)
        lacks = [label for label in task.labels if label not in has]
        if lacks:
            notes.append(f"No {name} row has {len(lacks)} of the {len(task.labels)} labels: {_some(lacks)}.")
    return notes


def _numbers(task: Labelled) -> list[str]:
    """Labels that are numbers and are asked for as such, which tells a model nothing."""
    named = any(label != task.words.get(label) for label in task.labels)
    if not task.in_words or named or not all(map(_is_number, task.labels)):
        return []
    return [
        f"The labels are numbers, and the model is asked for the words {_some(map(repr, task.labels))}. To name what "
        f"they mean, type: {typed(task.labels[:SHOWN], more=len(task.labels) > SHOWN)}"
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _some(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:SHOWN]) + (", ..." if len(every) > SHOWN else "")
