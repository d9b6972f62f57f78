"""What each kind of model sees of a document is what the tasks of a comparison make of the same rows."""

import numpy as np
import pytest
import torch

from tunescope.lab.worlds.curriculum import WORDS, WORLD, Curriculum, word_ids
from tunescope.lab.worlds.documents import IGNORED
from tunescope.lab.worlds.sights import FARTHEST, Reader, Sight
from tunescope.lab.worlds.skills import Sequences
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import text
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation

ORDERS = Curriculum("generation", ("reverse", "add1"), named=False)
FIRSTS = Curriculum("classification", ("first_high", "has_zero"), named=False)


def seen(curriculum: Curriculum, reader: Reader, sequences: Sequences, *, named: bool = False) -> Sight:
    """One document of these sequences, of the curriculum's first skill, as in a test."""
    return reader.sight(*curriculum.documents(sequences[None], [curriculum.mix[0]], named, reader.kind), None)


def reversed_rows(sequences: Sequences) -> list[dict[str, str]]:
    return [{"input": text(one), "target": text(one[::-1])} for one in sequences]


def first_rows(sequences: Sequences) -> list[dict[str, str]]:
    return [{"text": text(one), "label": "yes" if one[0] >= 3 else "no"} for one in sequences]


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_a_skill_is_seen_as_a_generation_asks_for_it(kind: str) -> None:
    tokenizer = tokenizer_for(WORLD, WORDS)
    sequences = WORLD.sequences("train", 3, seed=4)
    solved = reversed_rows(sequences)
    task = Generation().prepare({"train": solved}, tokenizer, model_kind=kind)
    last = task.encode(solved[2:], tokenizer, model_kind=kind, train=True)[0]
    shown = tokenizer("".join(f"{row['input']}\n{row['target']}\n\n" for row in solved[:2]))["input_ids"]

    sight = seen(ORDERS, Reader(kind, start=7), sequences)

    asked = [*shown, *last.input_ids]
    if kind == "decoder":
        assert sight.inputs["input_ids"].tolist() == [[*asked, *last.target_ids[:-1]]]
    else:
        assert sight.inputs["input_ids"].tolist() == [asked]
        assert sight.inputs["decoder_input_ids"].tolist() == [[7, *last.target_ids[:-1]]]
    assert sight.labels[sight.labels != IGNORED].tolist() == list(last.target_ids)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder", "encoder"])
def test_a_concept_is_seen_as_a_classification_asks_for_it(kind: str) -> None:
    tokenizer = tokenizer_for(WORLD, WORDS, encoder=kind == "encoder")
    sequences = np.array([[3, 0, 0, 1, 1, 1], [2, 5, 5, 4, 4, 4], [4, 1, 1, 2, 2, 0]])
    solved = first_rows(sequences)
    template = {"template": "{text} {mask}"} if kind == "encoder" else {}
    task = Classification(**template).prepare({"train": solved}, tokenizer, model_kind=kind)
    last = task.encode(solved[2:], tokenizer, model_kind=kind)[0]
    behind = " {label}" if kind == "encoder" else "\nLabel: {label}"
    shown = [row["text"] + behind.format(**row) + "\n\n" for row in solved[:2]]
    assert sorted(shown) == sorted(task.demonstrations(solved[:2], 1, seed=0).split("\n\n")[i] + "\n\n" for i in (0, 1))
    ids = tokenizer("".join(shown), add_special_tokens=False)["input_ids"]

    reader = Reader(kind, start=7, first=tokenizer.cls_token_id or 0, mask=tokenizer.mask_token_id or 0)
    sight = seen(FIRSTS, reader, sequences)

    front = [tokenizer.cls_token_id] if kind == "encoder" else []
    asked = [*front, *ids, *last.input_ids[len(front) :]]
    assert sight.inputs["input_ids"].tolist() == [asked]
    learned = sight.labels != IGNORED
    assert sight.labels[learned].tolist() == [word_ids()["yes"]] == list(last.target_ids)
    if kind == "encoder":
        assert learned.nonzero()[0, 1] == last.slot + len(ids)


def test_a_name_is_a_line_in_front_that_is_never_learned() -> None:
    sequences = WORLD.sequences("train", 2, seed=5)
    plain, named = (seen(ORDERS, Reader("decoder"), sequences, named=named) for named in (False, True))
    name = [word_ids()["reverse"], word_ids()["\n"]]
    assert named.inputs["input_ids"].tolist() == [[*name, *plain.inputs["input_ids"][0].tolist()]]
    assert named.labels[0].tolist() == [IGNORED, IGNORED, *plain.labels[0].tolist()]


def test_batches_name_most_documents_only_where_the_curriculum_has_names() -> None:
    for named, low, high in ((True, 0.6, 0.9), (False, 0.0, 0.0)):
        batches = Curriculum("generation", ("reverse", "add1"), named).batches(Reader("decoder"), seed=0)
        names = {word_ids()["reverse"], word_ids()["add1"]}
        share = np.mean([next(batches).inputs["input_ids"][0, 0].item() in names for _ in range(60)])
        assert low <= share <= high


def test_learned_positions_are_moved_in_training_and_never_in_a_test() -> None:
    reader = Reader("decoder", moved=True)
    batches = ORDERS.batches(reader, seed=0)
    starts = {next(batches).inputs["position_ids"][0, 0].item() for _ in range(40)}
    assert 0 in starts and len(starts) > 5 and max(starts) < FARTHEST
    assert seen(ORDERS, reader, WORLD.sequences("train", 1, seed=0)).inputs["position_ids"][0, 0] == 0


def test_an_encoder_learns_at_its_mask_and_at_its_first_token() -> None:
    batches = FIRSTS.batches(Reader("encoder", first=50, mask=51), seed=0)
    places = set()
    for _ in range(10):
        sight = next(batches)
        assert (sight.inputs["input_ids"][:, 0] == 50).all()
        masked = bool((sight.inputs["input_ids"][:, -1] == 51).all())
        learned = sight.labels != IGNORED
        assert learned[:, -1 if masked else 0].all()
        learned[:, 0] = False
        assert torch.equal(learned, sight.inputs["input_ids"] == 51)  # and nothing that can be read
        places.add(masked)
    assert places == {True, False}
