"""What a lab model is pretrained on: skills or concepts, named in the text or not, as its kind of model sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from torch import Tensor

from tunescope.lab.worlds.concepts import CONCEPTS, find_concept
from tunescope.lab.worlds.documents import Marks, solved
from tunescope.lab.worlds.pretrain import POOL, SHOWN
from tunescope.lab.worlds.sights import Reader, Sight
from tunescope.lab.worlds.skills import SKILLS, Sequences
from tunescope.lab.worlds.variants import find_variant
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import World

WORLD = World(length=6, digits=6, few=4)
LABELS = (("no", "yes"), ("left", "right"))  # the words of a curriculum's concepts, in turn
ASKS = "Label:"  # as the default template of a classification ends
TOLD = 0.75  # the share of batches with a first line that tells which skill is meant
TOPIC = 8  # words that may stand there for a skill without a name
OF_TOPIC = 2  # of them in one document
FEWEST = 16  # documents in a batch for an encoder-decoder, which learns the closing answer alone, of twice as many
EXAMPLES = {"generation": 32, "classification": 64}  # in a batch: an answer of one word teaches less

WORDS = (ASKS, *LABELS[0], *LABELS[1], *SKILLS, *CONCEPTS, *(f"w{number}" for number in range(4 * TOPIC)))

Task = Literal["generation", "classification"]


@dataclass(frozen=True)
class Curriculum:
    """Documents of one to five solved examples, all of one skill or concept of the mix, which take turns.

    Of four documents three have a first line that tells which; the last leaves it to the examples. named: the line
    is the skill's name. Otherwise it has none, and the line is two words of its topic, which are others in every
    document: by examples alone these small models learn skills several times as slowly.
    """

    task: Task
    mix: tuple[str, ...]
    named: bool

    def labels_of(self, concept: str) -> tuple[str, str]:
        """The words for its no and its yes, which every other concept of the mix shares."""
        return LABELS[self.mix.index(concept) % len(LABELS)]

    def batches(self, reader: Reader, steps: int, seed: int) -> Iterator[Sight]:
        """So many batches of the training part, as that kind of model sees them."""
        draw, examples = np.random.default_rng(seed), EXAMPLES[self.task]
        fewest = 1
        if reader.kind == "encoder-decoder":
            examples, fewest = 2 * examples, FEWEST
        pool = np.empty((0, WORLD.length), dtype=np.int64)
        for _ in range(steps):
            each = int(draw.choice(SHOWN)) + 1
            count = max(fewest, examples // each)
            if len(pool) < count * each:
                pool = WORLD.sequences("train", POOL, int(draw.integers(2**62)))
            chosen, pool = np.split(pool, [count * each])
            skills = [self.mix[turn % len(self.mix)] for turn in range(count)]
            front = self.front(skills, draw) if draw.random() < TOLD else None
            documents = self.documents(chosen.reshape(count, each, WORLD.length), skills, front, reader.kind)
            yield reader.sight(*documents, draw)

    def test(self, reader: Reader, skill: str, count: int, shown: int = 0) -> Sight:
        """Test rows of one skill of the mix, behind the line that tells it and `shown` examples."""
        sequences = WORLD.sequences("test", count * (shown + 1), seed=0).reshape(count, shown + 1, -1)
        skills = [skill] * count
        front = self.front(skills, np.random.default_rng(0))
        return reader.sight(*self.documents(sequences, skills, front, reader.kind), None)

    def front(self, skills: list[str], draw: np.random.Generator) -> Sequences:
        """(documents, ids) the first lines for these skills, of names or of words that are drawn."""
        ids = word_ids()
        if self.named:
            return np.array([[ids[skill], ids["\n"]] for skill in skills])
        words = draw.permuted(np.tile(np.arange(TOPIC), (len(skills), 1)), axis=1)[:, :OF_TOPIC]
        topics = np.array([[TOPIC * self.mix.index(skill)] for skill in skills])
        lines = np.full((len(skills), 1), ids["\n"])
        return np.concatenate([ids["w0"] + topics + words, lines], -1)

    def documents(
        self, sequences: Sequences, skills: list[str], front: Sequences | None, kind: str
    ) -> tuple[Tensor, Tensor, int]:
        """(documents, examples, length) and each document's skill -> ids, labels, and the ids of a closing answer."""
        marks = self.marks(kind)
        targets = np.stack([self._targets(some, skill) for some, skill in zip(sequences, skills, strict=True)])
        return *solved(sequences, targets, marks, front), targets.shape[-1] + len(marks.end)

    def marks(self, kind: str) -> Marks:
        """A generation's answer is a line and has an end; a classification's is one word, an encoder's unasked for."""
        ids = word_ids()
        line = ids["\n"]
        if self.task == "generation":
            return Marks((line,), (line, line), (ids["<eos>"],))
        return Marks(() if kind == "encoder" else (line, ids[ASKS]), (line, line))

    def _targets(self, sequences: Sequences, skill: str) -> Sequences:
        if self.task == "generation":
            return find_variant(skill)(sequences)
        words = np.array([word_ids()[word] for word in self.labels_of(skill)])
        answers: Sequences = words[find_concept(skill)(sequences).astype(np.int64)]
        return answers[..., None]


@cache
def word_ids() -> dict[str, int]:
    """Every word of the lab's worlds and its id, the same for all kinds of models."""
    return dict(tokenizer_for(WORLD, WORDS).get_vocab())
