"""What each kind of model sees of a document is what the tasks of a comparison make of the same rows."""

import numpy as np
import pytest
import torch

from tunescope.lab.worlds.curriculum import WORDS, WORLD, Curriculum, word_ids
from tunescope.lab.worlds.documents import IGNORED
from tunescope.lab.worlds.sights import Reader, Sight
from tunescope.lab.worlds.skills import Sequences
from tunescope.lab.worlds.vocabulary import tokenizer_for
from tunescope.lab.worlds.world import part_of, text
from tunescope.tasks.kinds.classification import Classification
from tunescope.tasks.kinds.generation import Generation

ORDERS = Curriculum("generation", ("reverse", "add1"), named=False)
NAMES = Curriculum("generation", ("reverse", "add1"), named=True)
FIRSTS = Curriculum("classification", ("first_high", "has_zero"), named=False)


def seen(curriculum: Curriculum, reader: Reader, sequences: Sequences) -> Sight:
    """One document of these sequences, of the curriculum's first skill, as in a test, with nothing in front."""
    return reader.sight(*curriculum.documents(sequences[None], [curriculum.mix[0]], None, reader.kind), None)


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


def test_a_first_line_stands_in_front_and_is_never_learned() -> None:
    sequences = WORLD.sequences("train", 4, seed=5).reshape(2, 2, -1)
    skills = ["reverse", "add1"]
    plain, labels, _ = ORDERS.documents(sequences, skills, None, "decoder")
    front = NAMES.front(skills, np.random.default_rng(0))
    ids = word_ids()
    assert front.tolist() == [[ids["reverse"], ids["\n"]], [ids["add1"], ids["\n"]]]
    told, told_labels, _ = NAMES.documents(sequences, skills, front, "decoder")
    assert torch.equal(told, torch.cat([torch.from_numpy(front), plain], -1))
    assert torch.equal(told_labels, torch.cat([torch.full((2, 2), IGNORED), labels], -1))


def test_a_skill_without_a_name_has_two_words_of_its_own_topic_in_front() -> None:
    ids = word_ids()
    front = ORDERS.front(["reverse", "add1"] * 300, np.random.default_rng(0))
    assert (front[:, 2] == ids["\n"]).all() and (front[:, 0] != front[:, 1]).all()
    assert set(front[::2, :2].ravel()) == {ids[f"w{number}"] for number in range(8)}
    assert set(front[1::2, :2].ravel()) == {ids[f"w{number}"] for number in range(8, 16)}


@pytest.mark.parametrize("curriculum", [NAMES, ORDERS])
def test_three_batches_in_four_have_a_first_line(curriculum: Curriculum) -> None:
    batches = curriculum.batches(Reader("decoder"), 100, seed=0)
    share = np.mean([one.inputs["input_ids"][0, 0].item() > WORLD.largest for one in batches])
    assert 0.6 < share < 0.9


def test_batches_are_so_many_and_an_encoder_decoder_always_has_answers_to_learn() -> None:
    found = list(ORDERS.batches(Reader("encoder-decoder"), 30, seed=0))
    assert len(found) == 30
    assert min(len(one.labels) for one in found) == 16


def test_an_encoder_learns_at_its_mask_and_at_its_first_token() -> None:
    batches = FIRSTS.batches(Reader("encoder", first=500, mask=501), 10, seed=0)
    places = set()
    for sight in batches:
        assert (sight.inputs["input_ids"][:, 0] == 500).all()
        masked = bool((sight.inputs["input_ids"][:, -1] == 501).all())
        learned = sight.labels != IGNORED
        assert learned[:, -1 if masked else 0].all()
        learned[:, 0] = False
        assert torch.equal(learned, sight.inputs["input_ids"] == 501)  # and nothing that can be read
        places.add(masked)
    assert places == {True, False}


def test_models_are_pretrained_on_the_training_part_alone_and_tested_on_the_other() -> None:
    """Without a first line the first document's first example begins the text."""
    reader, front = Reader("decoder"), 2  # a name and a line end
    batches = [one.inputs["input_ids"] for one in NAMES.batches(reader, 20, seed=0)]
    learned = [ids[ids[:, 0] <= WORLD.largest, : WORLD.length] for ids in batches]
    learned += [ids[ids[:, 0] > WORLD.largest, front : front + WORLD.length] for ids in batches]
    assert {part_of(row) for ids in learned for row in ids.numpy()} == {"train"}
    tested = NAMES.test(reader, "reverse", 40).inputs["input_ids"][:, front : front + WORLD.length]
    assert {part_of(row) for row in tested.numpy()} == {"test"}
