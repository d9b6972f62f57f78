"""The lab's 178 worlds: a pretrained model, a skill or concept that it is asked for, and the files to ask with.

python -m tunescope.lab.worlds.questions            lists them
python -m tunescope.lab.worlds.questions 17 DIR     makes the model and the files, and says what to type
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tunescope.errors import UserError
from tunescope.lab.worlds.base_table import MODELS, base, subject
from tunescope.lab.worlds.bases import pretrained
from tunescope.lab.worlds.concepts import find_concept
from tunescope.lab.worlds.curriculum import LABELS, WORLD, Task
from tunescope.lab.worlds.skills import Sequences
from tunescope.lab.worlds.variants import find_variant
from tunescope.lab.worlds.world import Part, text, write

SIZES: dict[Part, int] = {"train": 2000, "dev": 100, "test": 300}
DRAWN = 4  # sequences for each row, so that half of them can have either label

Kind = Literal["named", "unnamed", "composed", "renamed", "near", "far"]


@dataclass(frozen=True)
class Question:
    """One world. skill: of a generation as `find_variant` reads it, of a classification a concept.

    kind: the model knows the skill by a name, or without one from texts of its topic; it is two known ones in a row, a
    known concept under other labels, near to a known one, or far from all. labels: the words for no and yes, of a
    classification.
    """

    number: int
    model: int
    architecture: str
    depth: int
    task: Task
    kind: Kind
    skill: str
    by: str = ""
    labels: tuple[str, ...] = ()

    @property
    def asked(self) -> dict[str, str]:
        """The task with its fields, as a plan has it."""
        if self.task == "generation":
            return {"kind": "generation"}
        template = {"template": "{text} {mask}"} if self.architecture == "bert" and self.by == "words" else {}
        return {"kind": "classification", "by": self.by, **template}

    def rows(self, part: Part) -> list[dict[str, str]]:
        """The rows of a part: no sequence twice, none in two parts, as many of either label."""
        count = SIZES[part]
        drawn = WORLD.sequences(part, DRAWN * count, seed=1)
        sequences = drawn[np.sort(np.unique(drawn, axis=0, return_index=True)[1])]
        if self.task == "generation":
            kept = sequences[:count]
            targets = find_variant(self.skill)(kept)
            return [{"input": text(s), "target": text(t)} for s, t in zip(kept, targets, strict=True)]
        kept = _balanced(sequences, find_concept(self.skill)(sequences), count)
        answers = find_concept(self.skill)(kept)
        return [{"text": text(s), "label": self.labels[int(yes)]} for s, yes in zip(kept, answers, strict=True)]

    def files(self, where: Path) -> dict[str, str]:
        """Part -> its file in the folder, which is made."""
        where.mkdir(parents=True, exist_ok=True)
        name = f"world{self.number}"
        return {part: str(write(where / f"{name}.{part}.jsonl", self.rows(part))) for part in SIZES}

    def command(self, model: Path, where: Path) -> list[str]:
        """The words of a command line that asks this, its files being in the folder."""
        files = self.files(where)
        options = [word for name, value in self.asked.items() for word in (f"--{TYPED.get(name, name)}", value)]
        data = [files["train"], "--dev", files["dev"], "--test", files["test"]]
        return ["tunescope", "compare", str(model), *data, *options]


TYPED = {"kind": "task"}


def _balanced(sequences: Sequences, yes: NDArray[np.bool_], count: int) -> Sequences:
    """The first sequences of which half, rounded up, are answered with no, in their order."""
    places = [np.flatnonzero(yes == answer) for answer in (False, True)]
    wanted = (count - count // 2, count // 2)
    chosen = np.concatenate([place[:number] for place, number in zip(places, wanted, strict=True)])
    kept: Sequences = sequences[np.sort(chosen)]
    return kept


def questions() -> list[Question]:
    """All worlds in their order; those of a model are next to each other."""
    every = [one for model in range(len(MODELS)) for one in _of_model(model)]
    return [Question(number, *one) for number, one in enumerate(every)]


def question(number: int) -> Question:
    """The world of that number.

    Raises:
        UserError: there is none.
    """
    every = questions()
    if not 0 <= number < len(every):
        raise UserError(f"There is no lab world {number}; they are numbered from 0 to {len(every) - 1}.")
    return every[number]


def _of_model(model: int) -> Iterator[tuple[Any, ...]]:
    """What is asked of a model: the fields of `Question` but for the number."""
    architecture, depth, *_, named = MODELS[model]
    about, turn = subject(model), model % 2
    fixed = (model, architecture, depth, about.task)
    known: Kind = "named" if named else "unnamed"
    if about.task == "generation":
        yield from ((*fixed, known, skill) for skill in about.known)
        if about.composed:
            yield (*fixed, "composed", about.composed[turn])
        yield from ((*fixed, "near", skill) for skill in (about.near if not about.composed else (about.near[turn],)))
        yield (*fixed, "far", about.far[turn])
        return
    by, usual = "head" if architecture == "bert" and turn else "words", LABELS[0]
    first, second = about.known
    yield (*fixed, known, first, by, usual)
    yield (*fixed, known, second, by, LABELS[1]) if by == "head" else (*fixed, "renamed", first, by, LABELS[1])
    yield from ((*fixed, kind, skill[turn], by, usual) for kind, skill in (("near", about.near), ("far", about.far)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tunescope.lab.worlds.questions", description=__doc__)
    parser.add_argument("number", type=int, nargs="?", help="of a world; without one all are listed")
    parser.add_argument("folder", type=Path, nargs="?", help="where its files are written")
    given = parser.parse_args()
    if given.number is None or given.folder is None:
        for one in questions():
            print(one.number, one.model, one.architecture, one.depth, one.task, one.kind, one.skill, sep="\t")
        return
    asked = question(given.number)
    print(shlex.join(asked.command(pretrained(base(asked.model)), given.folder)))


if __name__ == "__main__":
    main()
