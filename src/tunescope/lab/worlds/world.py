"""The digit world: random sequences, a split that never changes, and rows for plain JSONL files.

The generator of Petrov et al. 2024 (section 5): ten digits from 0 to 7; a fair coin at each attempt decides
whether a sequence with more than five distinct digits is rejected. Theirs split by Python's salted hash and
drew new test rows at every call; here a sequence belongs to one part for ever, in every process.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import Sequences, find

Part = Literal["train", "dev", "test"]
SHARES: dict[Part, range] = {"test": range(0, 2), "dev": range(2, 3), "train": range(3, 8)}  # eighths
OF_EIGHTH: tuple[Part, ...] = tuple(part for part, eighths in SHARES.items() for _ in eighths)


@dataclass(frozen=True)
class World:
    """Sequences of ``length`` digits below ``digits``; half of the draws must have at most ``few`` distinct ones."""

    length: int = 10
    digits: int = 8
    few: int = 5

    @property
    def largest(self) -> int:
        """The largest number any skill can produce: a digit plus three, or a count."""
        return max(self.digits + 2, self.length)

    def draw(self, count: int, generator: np.random.Generator) -> Sequences:
        """(count, length) by the rejection rule, all parts mixed."""
        kept = np.empty((0, self.length), dtype=np.int64)
        while len(kept) < count:
            tried = generator.integers(0, self.digits, (2 * count, self.length))
            refuses_many = generator.random(len(tried)) < 0.5
            kept = np.concatenate([kept, tried[~(refuses_many & (distinct(tried) > self.few))]])
        return kept[:count]

    def sequences(self, part: Part, count: int, seed: int) -> Sequences:
        """(count, length), all of ``part``, the same for the same arguments wherever this runs."""
        if part not in SHARES:
            raise UserError(f"The digit world was asked for the part '{part}'; it has: {', '.join(SHARES)}.")
        generator = np.random.default_rng(seed)
        kept = np.empty((0, self.length), dtype=np.int64)
        while len(kept) < count:
            tried = self.draw(2 * count, generator)
            kept = np.concatenate([kept, tried[[part_of(row) == part for row in tried]]])
        return kept[:count]


def distinct(sequences: Sequences) -> Sequences:
    """(..., length) -> (...): how many different elements each sequence has."""
    ordered = np.sort(sequences, axis=-1)
    changes: Sequences = (np.diff(ordered, axis=-1) != 0).sum(-1)
    return changes + 1


def part_of(sequence: Sequences) -> Part:
    """The part a sequence belongs to, by a digest of its digits: test 1/4, dev 1/8, train 5/8."""
    return OF_EIGHTH[blake2b(bytes(sequence.tolist()), digest_size=8).digest()[0] % 8]


def rows(sequences: Sequences, skill: str) -> list[dict[str, str]]:
    """One row a sequence: its text and what the skill makes of it."""
    targets = find(skill)(sequences)
    return [{"input": text(s), "target": text(t)} for s, t in zip(sequences, targets, strict=True)]


def text(sequence: Sequences) -> str:
    """A sequence as words: "3 1 2"."""
    return " ".join(str(number) for number in sequence.tolist())


def write(path: Path, data: Iterable[dict[str, str]]) -> Path:
    """``path``, holding one JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
    return path
