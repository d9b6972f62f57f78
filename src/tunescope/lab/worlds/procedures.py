"""Procedures of the digit world: one step, applied several times. The steps in between can be written down or not.

Every step maps (rows, width) to (rows, width); a start is what is given, the first of the states, and what follows it
are the states. Digits are below 10, sums are taken modulo 10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tunescope.errors import UserError
from tunescope.lab.worlds.lessons import WATCHED, Lesson
from tunescope.lab.worlds.skills import Sequences
from tunescope.lab.worlds.world import Part, part_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BASE = 10
TRIES = 2  # rows drawn for each row wanted, a pass; the parts are eighths


@dataclass(frozen=True)
class Procedure:
    """What is given, and how a state follows from what is given and the state before.

    draw: (count, generator) -> (count, given). begin: given -> the state before the first step, which is not written.
    step: (given, state) -> the next state.
    """

    name: str
    about: str
    times: int
    draw: Callable[[int, np.random.Generator], Sequences]
    begin: Callable[[Sequences], Sequences]
    step: Callable[[Sequences, Sequences], Sequences]

    def states(self, given: Sequences) -> list[Sequences]:
        """The state after each step; the last is the answer."""
        found, state = [], self.begin(given)
        for _ in range(self.times):
            state = self.step(given, state)
            found.append(state)
        return found

    def given(self, part: Part, count: int, seed: int) -> Sequences:
        """(count, given): what is given, all of `part`, as in `World.sequences`."""
        generator = np.random.default_rng(seed)
        kept = self.draw(0, generator)
        while len(kept) < count:
            tried = self.draw(TRIES * count, generator)
            kept = np.concatenate([kept, tried[[part_of(row) == part for row in tried]]])
        return kept[:count]


def rows(procedure: Procedure, part: Part, count: int, seed: int, *, steps: bool) -> tuple[Tensor, int]:
    """(count, given + written) ids, and how many are written: every state, or without `steps` the last one alone."""
    given = procedure.given(part, count, seed)
    states = procedure.states(given)
    written = np.concatenate(states if steps else states[-1:], axis=1)
    return torch.from_numpy(np.concatenate([given, written], axis=1)), written.shape[1]


def lesson(procedure: Procedure, count: int, seed: int, *, steps: bool) -> Lesson:
    """A lesson of `count` training rows drawn by `seed`; the development rows are always the same."""
    train, written = rows(procedure, "train", count, seed, steps=steps)
    return Lesson(train, rows(procedure, "dev", WATCHED, 0, steps=steps)[0], written)


@torch.no_grad()
def writes(model: PreTrainedModel, given: Tensor, count: int) -> Tensor:
    """(rows, count): what the model goes on to write by itself, each token its likeliest."""
    ids = given
    for _ in range(count):
        ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids[:, given.shape[1] :]


def digits(length: int) -> Callable[[int, np.random.Generator], Sequences]:
    """Every digit alike."""
    return lambda count, generator: generator.integers(0, BASE, (count, length))


def pointer(length: int) -> Callable[[int, np.random.Generator], Sequences]:
    """A permutation of the first `length` digits that is one cycle, and the digit to begin at.

    With shorter cycles three hops would often end where they began, or where one look at the order leads.
    """

    def draw(count: int, generator: np.random.Generator) -> Sequences:
        cycles = generator.permuted(np.tile(np.arange(length), (count, 1)), axis=1)
        orders = np.empty_like(cycles)
        np.put_along_axis(orders, cycles, np.roll(cycles, -1, axis=1), axis=1)
        return np.concatenate([orders, generator.integers(0, length, (count, 1))], axis=1)

    return draw


def plus_one(given: Sequences, state: Sequences) -> Sequences:
    """Every digit plus one."""
    return (state + 1) % BASE


def neighbours(given: Sequences, state: Sequences) -> Sequences:
    """Every digit plus the one before it; the first plus the last."""
    moved: Sequences = (state + np.roll(state, 1, axis=-1)) % BASE
    return moved


def hop(given: Sequences, state: Sequences) -> Sequences:
    """The digit that stands at the place which the state names."""
    return np.take_along_axis(given[:, :-1], state, axis=1)


def whole(given: Sequences) -> Sequences:
    return given


def last(given: Sequences) -> Sequences:
    return given[:, -1:]


PROCEDURES = {
    one.name: one
    for one in (
        Procedure("plus-one", "every digit plus one", 3, digits(6), whole, plus_one),
        Procedure("neighbour-sums", "every digit plus the one before it", 3, digits(6), whole, neighbours),
        Procedure("hops", "from place to place around a cycle of eight", 3, pointer(8), last, hop),
    )
}


def find(name: str) -> Procedure:
    """The procedure of that name."""
    if name not in PROCEDURES:
        raise UserError(f"The digit world was asked for the procedure '{name}'; it has: {', '.join(PROCEDURES)}.")
    return PROCEDURES[name]
