"""Documents of solved examples as token ids, laid out as the default generation template lays them out.

An example is "{input}\\n{target}"; an empty line parts it from the next, and an end token closes the document.
"""

import numpy as np
import torch
from torch import Tensor

from tunescope.lab.worlds.skills import Sequences
from tunescope.lab.worlds.world import World

IGNORED = -100  # torch's label of a position that is not learned


def document(sequences: Sequences, targets: Sequences, world: World) -> tuple[Tensor, Tensor]:
    """(documents, examples, length) twice -> ids and labels, both (documents, examples * (2 length + 3) - 1).

    Labels are the targets and the final end token in their places, and IGNORED elsewhere.
    """
    line, end = world.largest + 1, world.largest + 3
    shape = (*sequences.shape[:2], 1)
    one, two = np.full(shape, line), np.full((*shape[:2], 2), line)
    ids = np.concatenate([sequences, one, targets, two], -1)
    labels = np.full_like(ids, IGNORED)
    labels[..., world.length + 1 : -2] = targets
    ids, labels = ids.reshape(len(ids), -1)[:, :-1], labels.reshape(len(ids), -1)[:, :-1]
    ids[:, -1] = labels[:, -1] = end
    return torch.from_numpy(ids), torch.from_numpy(labels)
