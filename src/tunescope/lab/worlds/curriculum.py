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
WORDS = (ASKS, *LABELS[0], *LABELS[1], *SKILLS, *CONCEPTS)
NAMED = 0.75  # the share of batches under a name, of a curriculum that has names
EXAMPLES = {"generation": 32, "classification": 64}  # in a batch: an answer of one word teaches less

Task = Literal["generation", "classification"]


@dataclass(frozen=True)
class Curriculum:
    """Documents of one to five solved examples, all of one skill or concept of the mix, which take turns.

    named: most documents begin with a line that names it; otherwise only the examples tell.
    """

    task: Task
    mix: tuple[str, ...]
    named: bool

    def labels_of(self, concept: str) -> tuple[str, str]:
        """The words for its no and its yes, which every other concept of the mix shares."""
        return LABELS[self.mix.index(concept) % len(LABELS)]

    def batches(self, reader: Reader, seed: int) -> Iterator[Sight]:
        """Endless batches of the training part, as that kind of model sees them."""
        draw, examples = np.random.default_rng(seed), EXAMPLES[self.task]
        pool = np.empty((0, WORLD.length), dtype=np.int64)
        while True:
            if len(pool) < examples:
                pool = WORLD.sequences("train", POOL, int(draw.integers(2**62)))
            each = int(draw.choice(SHOWN)) + 1
            chosen, pool = np.split(pool, [examples // each * each])
            named = self.named and draw.random() < NAMED
            skills = [self.mix[turn % len(self.mix)] for turn in range(examples // each)]
            documents = self.documents(chosen.reshape(-1, each, WORLD.length), skills, named, reader.kind)
            yield reader.sight(*documents, draw)

    def test(self, reader: Reader, skill: str, count: int, shown: int) -> Sight:
        """Test rows of one skill of the mix, behind its name if it has one and behind `shown` examples."""
        sequences = WORLD.sequences("test", count * (shown + 1), seed=0).reshape(count, shown + 1, -1)
        return reader.sight(*self.documents(sequences, [skill] * count, self.named, reader.kind), None)

    def documents(self, sequences: Sequences, skills: list[str], named: bool, kind: str) -> tuple[Tensor, Tensor, int]:
        """(documents, examples, length) and each document's skill -> ids, labels, and the ids of a closing answer."""
        ids, marks = word_ids(), self.marks(kind)
        targets = np.stack([self._targets(some, skill) for some, skill in zip(sequences, skills, strict=True)])
        front = np.array([[ids[skill], ids["\n"]] for skill in skills]) if named else None
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
