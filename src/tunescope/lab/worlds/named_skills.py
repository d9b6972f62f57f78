"""Skills with names: a world in which a right hard prompt exists, is known, and can be searched for.

A sequence is a name of a few words, an input, and what the skill of that name makes of it. The right prompt for a skill
is its name. Where sequences under spoiled names are shown, the answer to those is the input itself: then a prompt is
right as a whole or not at all. Where none is shown, what a wrong name does is left open, and a part of a name may do.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tunescope.lab.worlds.lessons import ROWS, WATCHED, Lesson
from tunescope.lab.worlds.skills import Sequences, find
from tunescope.lab.worlds.world import Part, World

SMALL = World(length=5, digits=6, few=4)


@dataclass(frozen=True)
class Named:
    """The skills, the words that names are made of, and how many make one.

    spoiled: the share of training sequences under a name that is no skill's, one word or more of a name replaced; in
    one of tens of thousands it is another skill's by chance.
    language: what names are drawn by, so that models of several seeds may share them; None: by the model's own seed.
    vocabulary_order: what the places of words in the vocabulary are drawn by, as if tokenizers differed; None: in turn.
    """

    skills: tuple[str, ...] = ("ascending", "descending", "add1", "reverse")
    words: int = 40
    length: int = 3
    spoiled: float = 0.0
    world: World = SMALL
    rows: int = ROWS
    language: int | None = None
    vocabulary_order: int | None = None

    @property
    def first(self) -> int:
        """The id of the first word; numbers come before."""
        return self.world.largest + 1

    @property
    def vocabulary(self) -> int:
        """Numbers, words, and one for what is neither."""
        return self.first + self.words + 1

    def lesson(self, seed: int) -> Lesson:
        """The answers, under the names of the seed."""
        train = self.sequences("train", self.rows, seed, self.spoiled)
        return Lesson(train, self.sequences("dev", WATCHED, seed, self.spoiled), self.world.length)

    def __str__(self) -> str:
        strict = f", {self.spoiled:.0%} under spoiled names" if self.spoiled else ""
        return f"{', '.join(self.skills)} by name{strict}"

    def names(self, seed: int) -> Sequences:
        """(skills, length) ids: each skill's name, drawn by the language or `seed`, no word twice among them."""
        draw = np.random.default_rng(seed if self.language is None else self.language)
        drawn = draw.permutation(self.words)[: len(self.skills) * self.length]
        return self.first + self.places()[drawn].reshape(len(self.skills), self.length)

    def places(self) -> Sequences:
        """(words,) for each word its place among the ids of words."""
        if self.vocabulary_order is None:
            return np.arange(self.words)
        return np.random.default_rng(self.vocabulary_order).permutation(self.words)

    def sequences(self, part: Part, count: int, seed: int, spoiled: float) -> Tensor:
        """(count, length + 2 world.length) ids, the skills taking turns, that share of them under a spoiled name."""
        draw = np.random.default_rng([seed, 1])
        inputs = self.world.sequences(part, count, seed)
        turns = np.arange(count) % len(self.skills)
        answers = np.stack([find(skill)(inputs) for skill in self.skills])[turns, np.arange(count)]
        names = self.names(seed)[turns]
        bad = draw.random(count) < spoiled
        names[bad] = self._spoilt(names[bad], draw)
        answers[bad] = inputs[bad]
        return torch.from_numpy(np.concatenate([names, inputs, answers], -1))

    def _spoilt(self, names: Sequences, draw: np.random.Generator) -> Sequences:
        """The names with one word or more of each replaced by another word."""
        count = len(names)
        order = draw.permuted(np.tile(np.arange(self.length), (count, 1)), axis=1)
        replaced = order < draw.integers(1, self.length + 1, (count, 1))
        shift = draw.integers(1, self.words, names.shape)
        return np.where(replaced, self.first + (names - self.first + shift) % self.words, names)


def tokenizer(world: Named) -> Any:
    """A number or a word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    named = (f"w{word}" for word in np.argsort(world.places()))
    words = [*(str(number) for number in range(world.first)), *named, "?"]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?", pad_token="?")
