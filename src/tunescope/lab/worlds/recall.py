"""A world that needs in-context learning: items with labels that are drawn anew for every sequence.

A demonstration is an item and its label. Which label an item has is decided by the sequence alone, so the answer to a
query must come from the demonstrations. Each item is shown once; then all are asked, in another order, each answer
given before the next is asked: a sequence teaches as many answers as it has items.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from tunescope.lab.worlds.lessons import ROWS, WATCHED, Lesson
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.prompts.demonstrations import Demonstration, solved

TEMPLATE = "{text}"
UNKNOWN = "?"


@dataclass(frozen=True)
class Recall:
    """The size of the world: items and labels there are, how many items a sequence shows; sequences of a lesson."""

    items: int = 8
    labels: int = 4
    shown: int = 8
    rows: int = ROWS

    @property
    def words(self) -> list[str]:
        """Token by token: items, labels, and a word for what is neither."""
        return [*(f"i{n}" for n in range(self.items)), *(f"l{n}" for n in range(self.labels)), UNKNOWN]

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return len(self.words)

    def lesson(self, seed: int) -> Lesson:
        """Of every sequence the answers, each second token of its second half."""
        train, dev = self.sequences(self.rows, seed), self.sequences(WATCHED, 10_000 + seed)
        return Lesson(train, dev, 2 * self.shown - 1, every=2)

    def __str__(self) -> str:
        return f"recall of {self.shown} items"

    def task(self) -> Classification:
        """The labels as words behind the item."""
        return Classification(template=TEMPLATE, words={f"l{n}": f"l{n}" for n in range(self.labels)})

    def sequences(self, count: int, seed: int) -> Tensor:
        """(count, 4 shown) ids: every item with its label, then every item asked and answered, in another order."""
        draw = torch.Generator().manual_seed(seed)
        items = torch.rand(count, self.items, generator=draw).argsort(1)[:, : self.shown]
        labels = self.items + torch.randint(self.labels, (count, self.shown), generator=draw)
        order = torch.rand(count, self.shown, generator=draw).argsort(1)
        items, labels = (torch.cat([one, one.gather(1, order)], 1) for one in (items, labels))
        return torch.stack([items, labels], -1).flatten(1)

    def draws(self, count: int, seed: int) -> list[tuple[list[Demonstration], list[dict[str, Any]]]]:
        """Demonstrations with every label among them at least once, and all their items as rows to be asked."""
        random, found = Random(seed), []
        for _ in range(count):
            items = random.sample(range(self.items), self.shown)
            labels = [n % self.labels for n in range(self.labels)]
            labels += random.choices(range(self.labels), k=self.shown - self.labels)
            random.shuffle(labels)
            rows = [{"text": f"i{item}", "label": f"l{label}"} for item, label in zip(items, labels, strict=True)]
            shown = [solved(TEMPLATE, row, row["label"], row["label"]) for row in rows]
            random.shuffle(rows)
            found.append((shown, rows))
        return found


def tokenizer(world: Recall) -> Any:
    """A word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(world.words)}, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token=UNKNOWN, pad_token=UNKNOWN)
