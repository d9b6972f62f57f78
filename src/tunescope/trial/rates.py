"""Learning rates of an arm: those of its methods' grids, those past an end or apart, and those that stop early.

Past the ends: a grid that suits large models can end too early for a small one. While the largest rate tried is the
best, three times that is tried too; while the smallest is, a third of it; at most as many as the plan says. Where no
rate scores above what one answer to all rows gets, no end is told from the other: what lies past the one has lost by
its loss alone, so the other is gone past as well.

Apart: the methods of a composition walk their grids together, and what suits them need not lie on that line. Where the
best so far has no end of all of them, each trained part alone is tried at the next larger of its rates, then each at
the next smaller, from the best so far on (a pattern search: Hooke and Jeeves 1961); these count as steps past an end.

Successive halving (Jamieson and Talwalkar 2016, arXiv:1502.07943, with thirds for halves): at a third of the steps the
best third of an arm's rates goes on, by the best development score until then, ties to the lower loss; of more than
three, a ninth goes on at a third of the steps and a third at a ninth; and so on. What goes on is a run like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tunescope.errors import UserError

PART = 3
UNTRAINED = "--halving has no effect where no arm is trained: there are no learning rates. Leave it out."


class Race(NamedTuple):
    """How many learning rates are tried, in how many steps, and how many lie between their scores."""

    rates: int
    steps: int
    eval_every: int


def rungs(race: Race) -> list[tuple[int, int]]:
    """The steps at which rates are held against one another, each with how many go on; the last leaves one."""
    count, found = 0, dict[int, int]()
    while PART**count < race.rates:
        count += 1
    for at in range(count):
        between = PART ** (count - at) * race.eval_every
        found[-(-race.steps // between) * race.eval_every] = -(-race.rates // PART ** (at + 1))
    return [(step, most) for step, most in found.items() if step < race.steps]


def check_halving(race: Race) -> None:
    """Raises UserError where no run would stop early."""
    if race.rates < 2:
        raise UserError("--halving has no effect on one learning rate; give more with --trials or --lr.")
    if race.steps == 1:
        raise UserError(f"--halving has no effect on one step: none is before the last. Type: --steps {PART}, or more")
    if not rungs(race):
        raise UserError(
            f"--halving has no effect with --eval-every {race.eval_every}: a third of {race.steps} "
            f"steps has no score. Type: --eval-every {max(1, race.steps // PART)}"
        )


def halving_rule(race: Race) -> str:
    """The rule as it works out here, for the record."""
    return "; ".join(
        f"at step {step} the best {most} of {race.rates} learning rates go on" for step, most in rungs(race)
    )


def trial_steps(race: Race) -> list[int]:
    """Of every learning rate's trial, the longest last."""
    left, found = race.rates, list[int]()
    for step, most in rungs(race):
        found += [step] * (left - most)
        left = most
    return found + [race.steps] * left


def grid(own: Sequence[Sequence[float]], trials: int, rates: Sequence[float]) -> list[tuple[float, ...]]:
    """For each trial the rate of every method: the grids of composed methods are walked together.

    own: each method's own grid. One trial takes the middle of the grids, two their ends.
    """
    if rates:
        return [(rate,) * len(own) for rate in sorted(rates)]
    grids = [sorted(one) for one in own]
    size = min(map(len, grids))
    if trials > size:
        raise UserError(f"--trials {trials}: the methods' own grids have {size} learning rates; name more with --lr.")
    chosen = {1: [size // 2], 2: [0, size - 1]}.get(trials, range(trials))
    return [tuple(rates[index] for rates in grids) for index in chosen]


Rates = tuple[float, ...]  # of each method of an arm

FACTOR = 3.0
FAR_OFF = 0.5  # of a start's training loss: another rate's that is lower takes its place
DIGITS = 3


def start(tried: Sequence[Rates]) -> Rates:
    """The middle of a grid, where a method's author expects the best; of two the larger."""
    return sorted(tried)[len(tried) // 2]


def unless_far_off(first: Rates, losses: Mapping[Rates, float]) -> Rates:
    """By the training losses of a few steps the first, unless another's is less than half of it, or it did not finish.

    A few steps are gone through fastest by rates that are too large to go any further, so a lower loss says little.
    """
    best = min(losses, key=lambda rates: losses[rates])
    return first if first in losses and losses[best] >= FAR_OFF * losses[first] else best


def check_beyond(race: Race) -> None:
    """Raises UserError where there is no end to go beyond."""
    if race.rates < 2:
        raise UserError("--beyond has no effect on one learning rate; give more with --trials or --lr.")


def following(
    tried: Sequence[Rates], best: Rates, parts: Sequence[int] = (), *, apart: bool = True, unmoved: bool = False
) -> Rates | None:
    """What to try after these, in their order, of which `best` won; None where it lies between others.

    parts: the places of the methods that are trained, but for a head beside them; () is all of them. No two of what is
    tried are the same there. apart: whether two or more of them are tried apart, too. unmoved: no score is above what
    one answer to all rows gets, so that the end not gone past last is tried, too.
    """
    if len(tried) < 2:
        return None
    own = {_at(rates, parts): rates for rates in tried}
    low, high = (own.get(tuple(map(end, zip(*own, strict=True)))) for end in (min, max))
    if best in (low, high):
        return _times(best, FACTOR if best == high else 1 / FACTOR)
    if unmoved:
        end = high if tried[-1] == low else low
        return end and _times(end, FACTOR if end == high else 1 / FACTOR)
    moved = (_moved(tried, best, part, up=up) for up in (True, False) for part in parts)
    return next((rates for rates in moved if _at(rates, parts) not in own), None) if apart and len(parts) > 1 else None


def _at(rates: Rates, parts: Sequence[int]) -> Rates:
    return tuple(rates[part] for part in parts) if parts else rates


def _moved(tried: Sequence[Rates], best: Rates, part: int, *, up: bool) -> Rates:
    """The best with one method at the next of its rates, past whose end a factor stands."""
    now = best[part]
    known = [rates[part] for rates in tried if (rates[part] > now if up else rates[part] < now)]
    beyond = _times((now,), FACTOR if up else 1 / FACTOR)[0]
    return (*best[:part], (min(known) if up else max(known)) if known else beyond, *best[part + 1 :])


def _times(rates: Rates, factor: float) -> Rates:
    """Rounded, so that a rate reads as it is typed."""
    return tuple(float(f"{rate * factor:.{DIGITS}g}") for rate in rates)
