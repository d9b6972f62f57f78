"""Documents of solved examples as token ids, laid out as the default templates lay them out.

An example is "{input}\\n{target}"; an empty line parts it from the next, and an end token closes the document.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tunescope.lab.worlds.skills import Sequences
from tunescope.lab.worlds.world import World

IGNORED = -100  # torch's label of a position that is not learned


@dataclass(frozen=True)
class Marks:
    """The ids around answers: what asks for one, what parts an example from the next, and what closes the document."""

    ask: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...] = ()


def document(sequences: Sequences, targets: Sequences, world: World) -> tuple[Tensor, Tensor]:
    """(documents, examples, length) twice -> ids and labels, both (documents, examples * (2 length + 3) - 1).

    Labels are the targets and the final end token in their places, and IGNORED elsewhere.
    """
    line, end = world.largest + 1, world.largest + 3
    return solved(sequences, targets, Marks((line,), (line, line), (end,)))


def solved(
    sequences: Sequences, targets: Sequences, marks: Marks, front: Sequences | None = None
) -> tuple[Tensor, Tensor]:
    """(documents, examples, length) and targets of any length -> ids and labels of one shape, a document a row.

    front: (documents, ids) that stand before the first example. Labels as `document` has them.
    """
    examples = sequences.shape[:2]

    def everywhere(ids: tuple[int, ...]) -> Sequences:
        return np.broadcast_to(np.array(ids, dtype=np.int64), (*examples, len(ids)))

    asked = np.concatenate([sequences, everywhere(marks.ask)], -1)
    between = everywhere(marks.between)
    ids = np.concatenate([asked, targets, between], -1)
    labels = np.concatenate([np.full_like(asked, IGNORED), targets, np.full_like(between, IGNORED)], -1)
    end = everywhere(marks.end)[:, 0]
    before = np.empty((examples[0], 0), dtype=np.int64) if front is None else front
    parts = [one.reshape(examples[0], -1)[:, : -len(marks.between)] for one in (ids, labels)]
    ids, labels = np.concatenate([before, parts[0], end], -1), np.concatenate([before, parts[1], end], -1)
    labels[:, : before.shape[1]] = IGNORED
    return torch.from_numpy(ids), torch.from_numpy(labels)
