"""Documents hold the very tokens that the default generation task makes of the same rows."""

import numpy as np
import torch

from tunescope.lab.worlds.documents import IGNORED, document
from tunescope.lab.worlds.skills import find
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import World, rows
from tunescope.tasks.kinds.generation import Generation


def test_a_document_is_demonstrations_then_a_prompt_then_its_target() -> None:
    world = World()
    tokenizer = tokenizer_for(world)
    sequences = world.sequences("train", 3, seed=4)
    solved = rows(sequences, "descending")
    task = Generation().prepare({"train": solved}, tokenizer, model_kind="decoder")
    last = task.encode(solved[2:], tokenizer, model_kind="decoder", train=True)[0]
    demonstrations = "".join(f"{row['input']}\n{row['target']}\n\n" for row in solved[:2])
    block = task.demonstrations(solved[:2], 2, seed=0)
    assert sorted(block.split("\n\n")) == sorted(demonstrations.split("\n\n"))

    ids, _ = document(sequences[None], find("descending")(sequences)[None], world)

    before = tokenizer(demonstrations, add_special_tokens=False)["input_ids"]
    assert ids[0].tolist() == [*before, *last.input_ids, *last.target_ids]


def test_labels_are_the_targets_and_one_end_and_nothing_else() -> None:
    sequences = np.arange(12).reshape(1, 2, 6) % 8
    world = World(length=6)
    ids, labels = document(sequences, sequences + 1, world)
    learned = labels != IGNORED
    assert torch.equal(labels[learned], ids[learned])
    assert labels[learned].tolist() == [*(sequences + 1)[0, 0].tolist(), *(sequences + 1)[0, 1].tolist(), 13]
