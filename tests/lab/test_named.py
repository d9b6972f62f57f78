"""The world of named skills: names, what stands under them, and under spoiled ones."""

from dataclasses import replace

import numpy as np
import torch

from tunescope.lab.worlds.lessons import Lesson
from tunescope.lab.worlds.named_skills import Named, tokenizer
from tunescope.lab.worlds.skills import find
from tunescope.lab.worlds.world import part_of

WORLD = Named(words=15, length=3)
NUMBERS = WORLD.world.length


def split(rows: torch.Tensor):
    found = rows.numpy()
    return found[:, :3], found[:, 3 : 3 + NUMBERS], found[:, 3 + NUMBERS :]


def test_names_share_no_word_and_are_drawn_from_the_seed():
    names = WORLD.names(5)
    assert names.shape == (4, 3) and len(set(names.ravel())) == 12
    assert names.min() >= WORLD.first and names.max() < WORLD.first + 15
    assert np.array_equal(names, WORLD.names(5)) and not np.array_equal(names, WORLD.names(6))


def test_under_a_name_stands_what_its_skill_makes_of_the_input():
    names, inputs, answers = split(WORLD.sequences("dev", 40, 5, spoiled=0.0))
    for turn, skill in enumerate(WORLD.skills):
        assert (names[turn::4] == WORLD.names(5)[turn]).all()
        assert np.array_equal(answers[turn::4], find(skill)(inputs[turn::4]))
    assert {part_of(row) for row in inputs} == {"dev"}


def test_under_a_spoiled_name_stands_the_input_and_one_to_all_of_its_words_are_wrong():
    names, inputs, answers = split(WORLD.sequences("train", 400, 5, spoiled=1.0))
    assert np.array_equal(answers, inputs)
    wrong = (names != np.tile(WORLD.names(5), (100, 1))).sum(1)
    assert set(wrong) == {1, 2, 3}
    assert names.min() >= WORLD.first and names.max() < WORLD.first + 15


def test_the_share_of_spoiled_names_is_the_one_asked_for():
    names, _, _ = split(WORLD.sequences("train", 2000, 5, spoiled=0.3))
    share = (names != np.tile(WORLD.names(5), (500, 1))).any(1).mean()
    assert abs(share - 0.3) < 0.04


def test_the_lesson_is_the_answers_under_the_names_of_the_seed_and_a_word_is_a_token():
    given = replace(WORLD, rows=20).lesson(5)
    assert isinstance(given, Lesson) and given.answer == NUMBERS
    assert np.array_equal(split(given.train)[0], np.tile(WORLD.names(5), (5, 1)))
    words = tokenizer(WORLD)
    assert len(words) == WORLD.vocabulary
    row = given.train[0].tolist()
    assert words(words.decode(row))["input_ids"] == row


def test_models_of_one_language_share_their_names_as_words_whatever_ids_words_have():
    one = replace(WORLD, language=3, vocabulary_order=7)
    other = replace(WORLD, language=3)
    assert sorted(one.places()) == list(range(15)) and not np.array_equal(one.places(), other.places())
    texts = [[tokenizer(world).decode(name) for name in world.names(seed)] for world, seed in ((one, 5), (other, 6))]
    assert texts[0] == texts[1]
    assert not np.array_equal(one.names(5), other.names(5))
    assert texts[0] != [tokenizer(other).decode(name) for name in replace(other, language=4).names(5)]
    row = replace(one, rows=4).lesson(5).train[0].tolist()
    assert (
        tokenizer(one).decode(row).startswith(texts[0][0])
        and tokenizer(one)(tokenizer(one).decode(row))["input_ids"] == row
    )


def test_progress_is_watched_on_inputs_of_the_development_part():
    given = replace(WORLD, rows=40).lesson(5)
    parts = [{part_of(row) for row in split(rows)[1]} for rows in (given.train, given.dev)]
    assert parts == [{"train"}, {"dev"}]
