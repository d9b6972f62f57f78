"""The skills of the digit world: pure functions of integer sequences (Petrov et al. 2023, section 5).

Every skill maps (..., length) to (..., length) along the last axis. ``add2`` reaches 9 and
``double_histogram`` of ten equal digits is 10, so a vocabulary for all of them holds the numbers 0 to 10.
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


SKILLS: dict[str, Skill] = {
    skill.__name__: skill for skill in (ascending, descending, add1, add2, double_histogram, rotate, reverse)
}


def find(name: str) -> Skill:
    """The skill of that name."""
    if name not in SKILLS:
        raise UserError(f"The digit world was asked for the skill '{name}'; it has: {', '.join(SKILLS)}.")
    return SKILLS[name]
