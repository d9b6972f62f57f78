"""The skills of the digit world: pure functions of integer sequences (after Petrov et al. 2024, section 5).

Every skill maps (..., length) to (..., length) along the last axis.
The paper's are ascending, descending, add1, add2, ascending_add1 and double_histogram. The others are of two kinds:
COMPOSED ones are two others in a row, so that a model which has both may have them; the rest need each output to look
at other inputs, or at them in another way.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tunescope.errors import UserError

Sequences = NDArray[np.int64]
Skill = Callable[[Sequences], Sequences]


def ascending(sequences: Sequences) -> Sequences:
    """The elements in rising order."""
    return np.sort(sequences, axis=-1)


def descending(sequences: Sequences) -> Sequences:
    """The elements in falling order."""
    return np.sort(sequences, axis=-1)[..., ::-1]


def add1(sequences: Sequences) -> Sequences:
    """Every element plus one, in place."""
    return sequences + 1


def add2(sequences: Sequences) -> Sequences:
    """Every element plus two, in place."""
    return sequences + 2


def ascending_add1(sequences: Sequences) -> Sequences:
    """The elements plus one, in rising order."""
    return ascending(sequences) + 1


def descending_add1(sequences: Sequences) -> Sequences:
    """The elements plus one, in falling order."""
    return descending(sequences) + 1


def ascending_add2(sequences: Sequences) -> Sequences:
    """The elements plus two, in rising order."""
    return ascending(sequences) + 2


def descending_add2(sequences: Sequences) -> Sequences:
    """The elements plus two, in falling order."""
    return descending(sequences) + 2


def add1_add2(sequences: Sequences) -> Sequences:
    """Plus one, then plus two."""
    return add2(add1(sequences))


def double_histogram(sequences: Sequences) -> Sequences:
    """For every element, how often it occurs in its sequence."""
    counts: Sequences = (sequences[..., :, None] == sequences[..., None, :]).sum(-1)
    return counts


def rotate(sequences: Sequences) -> Sequences:
    """Every element gives way to its successor; the first goes last."""
    return np.roll(sequences, -1, axis=-1)


def reverse(sequences: Sequences) -> Sequences:
    """The elements from last to first."""
    return sequences[..., ::-1]


def swap_pairs(sequences: Sequences) -> Sequences:
    """First and second change places, third and fourth, and so on; of an odd number the last stays."""
    order = np.arange(sequences.shape[-1])
    order[: len(order) // 2 * 2] ^= 1
    return sequences[..., order]


def running_maximum(sequences: Sequences) -> Sequences:
    """For every element, the largest up to it."""
    return np.maximum.accumulate(sequences, axis=-1)


def rank(sequences: Sequences) -> Sequences:
    """For every element, how many of its sequence are smaller."""
    counts: Sequences = (sequences[..., :, None] > sequences[..., None, :]).sum(-1)
    return counts


def occurrence(sequences: Sequences) -> Sequences:
    """For every element, how often it has occurred up to and with itself."""
    same = sequences[..., :, None] == sequences[..., None, :]
    counts: Sequences = np.tril(same).sum(-1)
    return counts


def minimum(sequences: Sequences) -> Sequences:
    """The smallest element, in every place."""
    return np.broadcast_to(sequences.min(-1, keepdims=True), sequences.shape).copy()


def copy_first(sequences: Sequences) -> Sequences:
    """The first element, in every place."""
    return np.broadcast_to(sequences[..., :1], sequences.shape).copy()


def larger_of_two(sequences: Sequences) -> Sequences:
    """For every element, the larger of it and the one before; the first is held against the last."""
    return np.maximum(sequences, np.roll(sequences, 1, axis=-1))


COMPOSED: dict[str, tuple[str, str]] = {
    "ascending_add1": ("ascending", "add1"),
    "descending_add1": ("descending", "add1"),
    "ascending_add2": ("ascending", "add2"),
    "descending_add2": ("descending", "add2"),
    "add1_add2": ("add1", "add2"),
}

SKILLS: dict[str, Skill] = {
    skill.__name__: skill
    for skill in (
        *(ascending, descending, add1, add2),
        *(ascending_add1, descending_add1, ascending_add2, descending_add2, add1_add2),
        *(double_histogram, rotate, reverse, swap_pairs, running_maximum),
        *(rank, occurrence, minimum, copy_first, larger_of_two),
    )
}


def find(name: str) -> Skill:
    """The skill of that name."""
    if name not in SKILLS:
        raise UserError(f"The digit world was asked for the skill '{name}'; it has: {', '.join(SKILLS)}.")
    return SKILLS[name]
