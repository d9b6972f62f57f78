"""Which rows to show as demonstrations, as row numbers. Draws depend on the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from tunescope.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def balanced(labels: Sequence[str], k: int, seed: int) -> list[int]:
    """`k` random rows of each label, mixed. labels: each row's.

    Raises:
        UserError: fewer than one is asked for, or more than a label has.
    """
    members: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    random, chosen = Random(seed), []
    for label, own in sorted(members.items()):
        if not 1 <= k <= len(own):
            raise UserError(
                f"{k} demonstrations a label are asked for, and label '{label}' has {len(own)} rows. "
                f"Allowed: 1 to {min(map(len, members.values()))}."
            )
        chosen += random.sample(own, k)
    random.shuffle(chosen)
    return chosen


def uniform(n_rows: int, count: int, seed: int) -> list[int]:
    """`count` random rows, whatever they are.

    Raises:
        UserError: fewer than one is asked for, or more than there are.
    """
    check(n_rows, count)
    return Random(seed).sample(range(n_rows), count)


def diverse(states: Tensor, count: int, seed: int) -> list[int]:
    """`count` rows that cover all rows, mixed: the farthest-first traversal (Gonzalez 1985) under cosine distance.

    The first is drawn; each next one is the row that is farthest from all chosen so far (ties to the earlier row). The
    largest distance of a row to its nearest chosen one is then at most twice the smallest possible, where the distance
    is a metric; cosine distance is half a squared one (of normed states), so there the bound is four times.

    Args:
        states: (rows, width).

    Raises:
        UserError: fewer than one is asked for, or more than there are.
    """
    check(len(states), count)
    random = Random(seed)
    normed = unit(states)
    chosen = [random.randrange(len(states))]
    nearest = 1 - normed @ normed[chosen[0]]
    for _ in range(count - 1):
        nearest[chosen] = -1.0  # below any distance, so no row comes twice
        chosen.append(int(nearest.argmax()))
        nearest = nearest.minimum(1 - normed @ normed[chosen[-1]])
    random.shuffle(chosen)
    return chosen


def closest(similar: Tensor, members: Sequence[int], count: int) -> list[int]:
    """The `count` members of the highest similarity, highest first; ties go to the member named first.

    Args:
        similar: (rows,), how like the query each row is.

    Raises:
        UserError: fewer than one is asked for, or more than there are.
    """
    check(len(members), count)
    order = similar[list(members)].sort(descending=True, stable=True).indices[:count]
    return [members[place] for place in order.tolist()]


def check(n_rows: int, count: int) -> None:
    """UserError for a number of demonstrations that the rows do not have."""
    if not 1 <= count <= n_rows:
        raise UserError(f"{count} demonstrations are asked for, of {n_rows} rows. Allowed: 1 to {n_rows}.")


def unit(states: Tensor) -> Tensor:
    """(rows, width): states of length 1, so that products are cosines; a state of zeros stays as it is."""
    normed: Tensor = states / states.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return normed
