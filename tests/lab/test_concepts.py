"""Concepts against answers written by hand, and how common their yes is in the lab's sequences."""

import numpy as np
import pytest

from tunescope.errors import UserError
from tunescope.lab.worlds.concepts import CONCEPTS, RELATED, find_concept
from tunescope.lab.worlds.curriculum import WORLD

SEQUENCES = np.array([[3, 1, 5, 2, 0, 2], [2, 4, 4, 1, 5, 3], [1, 2, 0, 5, 3, 5]])
BY_HAND = {
    "first_high": [True, False, False],
    "last_high": [False, True, True],
    "first_odd": [True, False, True],
    "last_odd": [False, True, True],
    "has_zero": [True, False, True],
    "has_four": [False, True, False],
    "mostly_high": [False, True, False],
    "mostly_odd": [False, False, True],
    "early_maximum": [True, False, False],
    "early_minimum": [False, False, True],
    "rises_overall": [False, True, True],
    "rises_midway": [False, False, True],
    "neighbours_equal": [False, True, False],
    "neighbours_count_up": [False, False, True],
}


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_gives_the_answers_written_by_hand(name: str) -> None:
    assert find_concept(name)(SEQUENCES).tolist() == BY_HAND[name]


@pytest.mark.parametrize("name", CONCEPTS)
def test_either_answer_is_common_enough_to_be_balanced(name: str) -> None:
    share = find_concept(name)(WORLD.sequences("train", 4000, seed=0)).mean()
    assert 0.25 < share < 0.75


def test_each_concept_is_related_to_one_other_and_that_to_it() -> None:
    assert set(RELATED) == set(CONCEPTS)
    assert all(RELATED[RELATED[name]] == name != RELATED[name] for name in RELATED)


def test_a_concept_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="asked for the concept 'has_nine'; it has: first_high, "):
        find_concept("has_nine")
