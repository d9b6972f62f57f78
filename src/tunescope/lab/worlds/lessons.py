"""Lessons: token sequences whose last tokens are to be learned, and the one way in which a model learns them.

A lesson is a tensor of ids, one sequence a row, input then answer, nothing between or around them: there is no task
indicator and no padding, as in Petrov et al. 2024, section 5, but for their padding that pretraining could attend to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import find
from tunescope.lab.worlds.world import Part, World
from tunescope.trial.train.loop import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROWS = 2**17  # training sequences; at 64 a step, 2,048 steps see none twice
WATCHED = 500  # rows of a development score
TOGETHER = 500  # rows of one evaluation pass


@dataclass(frozen=True)
class Lesson:
    """Rows to learn from, and rows of the development part to watch progress on.

    The last `answer` ids are learned; with every=2, every second of them alone, the last among them.
    """

    train: Tensor
    dev: Tensor
    answer: int
    every: int = 1


def vocabulary(world: World) -> int:
    """Numbers from 0 to the largest that a skill makes."""
    return world.largest + 1


def digits(world: World, skills: tuple[str, ...], part: Part, count: int, seed: int) -> Tensor:
    """(count, 2 length) ids: sequences of `part` and their answers, the skills taking turns, never named."""
    sequences = world.sequences(part, count, seed)
    targets = np.empty_like(sequences)
    for turn, skill in enumerate(skills):
        targets[turn :: len(skills)] = find(skill)(sequences[turn :: len(skills)])
    return torch.from_numpy(np.concatenate([sequences, targets], -1))


def lesson(world: World, skills: tuple[str, ...], count: int, seed: int) -> Lesson:
    """A lesson in the digit world, `count` training rows drawn by `seed`; the development rows are always the same."""
    return Lesson(
        train=digits(world, skills, "train", count, seed),
        dev=digits(world, skills, "dev", WATCHED, seed=0),
        answer=world.length,
    )


@dataclass(frozen=True)
class Unnamed:
    """Skills of the digit world in equal parts, never named."""

    skills: tuple[str, ...]
    world: World
    rows: int = ROWS

    @property
    def vocabulary(self) -> int:
        """How many symbols the world has."""
        return vocabulary(self.world)

    def lesson(self, seed: int) -> Lesson:
        """Inputs and answers, the skills taking turns."""
        return lesson(self.world, self.skills, self.rows, seed)

    def __str__(self) -> str:
        return ", ".join(self.skills)


def check_room(model: PreTrainedModel, ids: Tensor) -> None:
    """UserError where the model's vocabulary or positions are too few for the ids."""
    needed, has = int(ids.max()) + 1, int(model.config.vocab_size)
    if needed > has:
        raise UserError(f"This lesson needs {needed} symbols; the model's vocabulary has {has}.")
    length, room = ids.shape[1], int(model.config.max_position_embeddings)
    if length > room:
        raise UserError(f"This lesson has sequences of {length} tokens; the model has {room} positions.")


def answer_logits(model: PreTrainedModel, ids: Tensor, answer: int) -> Tensor:
    """(rows, answer, vocabulary): what the model says of each answer token given all before it."""
    logits: Tensor = model(input_ids=ids[:, :-1], use_cache=False, logits_to_keep=answer).logits
    return logits


def problem(
    model: PreTrainedModel, parameters: Mapping[str, Tensor], rate: float | Mapping[str, float], given: Lesson
) -> Problem:
    """The lesson on this model as the training loop wants it; its score is the share of right answer tokens."""
    check_room(model, given.train)

    def loss(rows: list[int]) -> Tensor:
        ids = given.train[rows]
        logits = _learned(answer_logits(model, ids, given.answer), given)
        return F.cross_entropy(logits.flatten(0, 1), _learned(ids[:, -given.answer :], given).flatten())

    return Problem(
        parameters=parameters,
        rates=dict.fromkeys(parameters, rate) if isinstance(rate, (int, float)) else rate,
        loss=loss,
        score=lambda: float(_learned(right(model, given.dev, given.answer), given).double().mean()),
        lengths=[given.train.shape[1]] * len(given.train),
        labelled=[-(-given.answer // given.every)] * len(given.train),
    )


def _learned(answers: Tensor, given: Lesson) -> Tensor:
    """(rows, answer, ...) -> those of the tokens that are learned."""
    return answers[:, (given.answer - 1) % given.every :: given.every]


@torch.no_grad()
def right(model: PreTrainedModel, ids: Tensor, answer: int) -> Tensor:
    """(rows, answer): whether each answer token has the highest logit, the right answer so far given.

    A row that is all True is one that greedy decoding gets whole, and the other way round.
    """
    parts = [answer_logits(model, part, answer).argmax(-1) == part[:, -answer:] for part in torch.split(ids, TOGETHER)]
    return torch.cat(parts)


def exact(model: PreTrainedModel, ids: Tensor, answer: int) -> list[int]:
    """One number a row: 1 where greedy decoding writes the whole answer."""
    found: list[int] = right(model, ids, answer).all(-1).int().tolist()
    return found
