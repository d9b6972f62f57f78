"""At how many seeds a comparison looks at its two deciding arms, and how sure each look must be."""

from __future__ import annotations

from collections.abc import Sequence

LOOKS = (3, 6, 12, 20)
LEAST = 3  # seeds: fewer tell nothing of other seeds, and no verdict is given
ERROR = 0.05  # of all looks together
APART = 1.25  # times the seeds of a look the next has at least


def planned(first: int, most: int) -> tuple[int, ...]:
    """The numbers of seeds at which a comparison of `first` to `most` seeds looks: those of LOOKS between, doubled on.

    The last is always `most`. Looks with fewer than LEAST seeds are left out, as they could not decide.

    Raises:
        ValueError: `first` is not in [1, most].
    """
    if not 1 <= first <= most:
        raise ValueError(f"planned({first}, {most}): the first look has from 1 to {most} seeds.")
    looks = [min(max(first, LEAST), most)]
    steps = [*LOOKS]
    while steps[-1] < most:
        steps.append(2 * steps[-1])
    for step in [one for one in steps if one < most]:
        if step >= APART * looks[-1] and most >= APART * step:
            looks.append(step)
    return (*looks, most) if looks[-1] < most else tuple(looks)


def level(looks: Sequence[int]) -> float:
    """The level of the interval at each look, so that all looks together are wrong in ERROR of all cases at most."""
    return 1 - ERROR / max(len(looks), 1)
