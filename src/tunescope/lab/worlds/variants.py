"""Variants of the digit world's skills, and skills one after the other: what is near to a skill that a model has."""

import numpy as np

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import SKILLS, Sequences, Skill

THEN = " then "


def add3(sequences: Sequences) -> Sequences:
    """Every element plus three, in place."""
    return sequences + 3


def rotate_two(sequences: Sequences) -> Sequences:
    """Every element gives way to the next but one; the first two go last."""
    return np.roll(sequences, -2, axis=-1)


def rotate_back(sequences: Sequences) -> Sequences:
    """Every element gives way to the one before; the last goes first."""
    return np.roll(sequences, 1, axis=-1)


def reverse_halves(sequences: Sequences) -> Sequences:
    """Each half from last to first; the middle of an odd number stays."""
    half = sequences.shape[-1] // 2
    order = np.arange(sequences.shape[-1])
    order[:half], order[-half:] = order[:half][::-1].copy(), order[-half:][::-1].copy()
    return sequences[..., order]


def swap_halves(sequences: Sequences) -> Sequences:
    """The second half, then the first; the middle of an odd number goes with the second."""
    return np.roll(sequences, -(sequences.shape[-1] // 2), axis=-1)


def running_minimum(sequences: Sequences) -> Sequences:
    """For every element, the smallest up to it."""
    return np.minimum.accumulate(sequences, axis=-1)


def maximum(sequences: Sequences) -> Sequences:
    """The largest element, in every place."""
    return np.broadcast_to(sequences.max(-1, keepdims=True), sequences.shape).copy()


def copy_last(sequences: Sequences) -> Sequences:
    """The last element, in every place."""
    return np.broadcast_to(sequences[..., -1:], sequences.shape).copy()


def rank_from_above(sequences: Sequences) -> Sequences:
    """For every element, how many of its sequence are larger."""
    counts: Sequences = (sequences[..., :, None] < sequences[..., None, :]).sum(-1)
    return counts


def smaller_of_two(sequences: Sequences) -> Sequences:
    """For every element, the smaller of it and the one before; the first is held against the last."""
    return np.minimum(sequences, np.roll(sequences, 1, axis=-1))


VARIANTS: dict[str, Skill] = {
    skill.__name__: skill
    for skill in (
        *(add3, rotate_two, rotate_back, reverse_halves, swap_halves),
        *(running_minimum, maximum, copy_last, rank_from_above, smaller_of_two),
    )
}


def find_variant(name: str) -> Skill:
    """A skill of the digit world or a variant by its name, or two in a row: "reverse then add1"."""
    known = SKILLS | VARIANTS
    parts = name.split(THEN)
    for part in parts:
        if part not in known:
            raise UserError(
                f"A lab world was asked for the skill '{part}'; there are: {', '.join(known)}, "
                "and two in a row, as 'reverse then add1'."
            )

    def whole(sequences: Sequences) -> Sequences:
        for part in parts:
            sequences = known[part](sequences)
        return sequences

    return whole
