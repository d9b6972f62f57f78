"""What a sequence of digits can be classified by: pure functions of (..., length) that say yes or no of each.

RELATED ones look at another place, digit or side in the same way. `labelled` turns them into words.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import Sequences

Answers = Any  # (...) of bool; what numpy says of a comparison
Concept = Callable[[Sequences], Answers]
HIGH = 3  # from here digits are high; the lab's sequences hold digits below 6


def first_high(sequences: Sequences) -> Answers:
    """The first digit is high."""
    return sequences[..., 0] >= HIGH


def last_high(sequences: Sequences) -> Answers:
    """The last digit is high."""
    return sequences[..., -1] >= HIGH


def first_odd(sequences: Sequences) -> Answers:
    """The first digit is odd."""
    return sequences[..., 0] % 2 == 1


def last_odd(sequences: Sequences) -> Answers:
    """The last digit is odd."""
    return sequences[..., -1] % 2 == 1


def has_zero(sequences: Sequences) -> Answers:
    """Some digit is 0."""
    return (sequences == 0).any(-1)


def has_four(sequences: Sequences) -> Answers:
    """Some digit is 4."""
    return (sequences == 4).any(-1)


def mostly_high(sequences: Sequences) -> Answers:
    """More digits are high than are not."""
    return 2 * (sequences >= HIGH).sum(-1) > sequences.shape[-1]


def mostly_odd(sequences: Sequences) -> Answers:
    """More digits are odd than are not."""
    return 2 * (sequences % 2).sum(-1) > sequences.shape[-1]


def early_maximum(sequences: Sequences) -> Answers:
    """The largest digit comes first in the first half."""
    return 2 * sequences.argmax(-1) < sequences.shape[-1]


def early_minimum(sequences: Sequences) -> Answers:
    """The smallest digit comes first in the first half."""
    return 2 * sequences.argmin(-1) < sequences.shape[-1]


def rises_overall(sequences: Sequences) -> Answers:
    """The last digit is larger than the first."""
    return sequences[..., -1] > sequences[..., 0]


def rises_midway(sequences: Sequences) -> Answers:
    """Of the two digits in the middle the later is the larger."""
    middle = sequences.shape[-1] // 2
    return sequences[..., middle] > sequences[..., middle - 1]


def neighbours_equal(sequences: Sequences) -> Answers:
    """Some digit equals the one before it."""
    return (np.diff(sequences, axis=-1) == 0).any(-1)


def neighbours_count_up(sequences: Sequences) -> Answers:
    """Some digit is one more than the one before it."""
    return (np.diff(sequences, axis=-1) == 1).any(-1)


RELATED: dict[str, str] = {
    "first_high": "last_high",
    "first_odd": "last_odd",
    "has_zero": "has_four",
    "mostly_high": "mostly_odd",
    "early_maximum": "early_minimum",
    "rises_overall": "rises_midway",
    "neighbours_equal": "neighbours_count_up",
}
RELATED |= {other: one for one, other in RELATED.items()}

CONCEPTS: dict[str, Concept] = {
    concept.__name__: concept
    for concept in (
        *(first_high, last_high, first_odd, last_odd, has_zero, has_four, mostly_high, mostly_odd),
        *(early_maximum, early_minimum, rises_overall, rises_midway, neighbours_equal, neighbours_count_up),
    )
}


def find_concept(name: str) -> Concept:
    """The concept of that name."""
    if name not in CONCEPTS:
        raise UserError(f"The digit world was asked for the concept '{name}'; it has: {', '.join(CONCEPTS)}.")
    return CONCEPTS[name]
