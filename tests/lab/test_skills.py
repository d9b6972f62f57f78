"""The skills against lists written by hand and against Python's own sorted and count."""

import numpy as np
import pytest

from tunescope.errors import UserError
from tunescope.lab.worlds.skills import COMPOSED, SKILLS, find
from tunescope.lab.worlds.world import World

BY_HAND = {
    "ascending": [0, 1, 1, 2, 3, 3, 3, 5, 7, 7],
    "descending": [7, 7, 5, 3, 3, 3, 2, 1, 1, 0],
    "add1": [4, 2, 8, 4, 1, 6, 2, 8, 4, 3],
    "add2": [5, 3, 9, 5, 2, 7, 3, 9, 5, 4],
    "reverse": [2, 3, 7, 1, 5, 0, 3, 7, 1, 3],
    "rotate": [1, 7, 3, 0, 5, 1, 7, 3, 2, 3],
    "double_histogram": [3, 2, 2, 3, 1, 1, 2, 2, 3, 1],
    "ascending_add1": [1, 2, 2, 3, 4, 4, 4, 6, 8, 8],
    "descending_add1": [8, 8, 6, 4, 4, 4, 3, 2, 2, 1],
    "ascending_add2": [2, 3, 3, 4, 5, 5, 5, 7, 9, 9],
    "descending_add2": [9, 9, 7, 5, 5, 5, 4, 3, 3, 2],
    "add1_add2": [6, 4, 10, 6, 3, 8, 4, 10, 6, 5],
    "swap_pairs": [1, 3, 3, 7, 5, 0, 7, 1, 2, 3],
    "running_maximum": [3, 3, 7, 7, 7, 7, 7, 7, 7, 7],
    "rank": [4, 1, 8, 4, 0, 7, 1, 8, 4, 3],
    "occurrence": [1, 1, 1, 2, 1, 1, 2, 2, 3, 1],
    "minimum": [0] * 10,
    "copy_first": [3] * 10,
    "larger_of_two": [3, 3, 7, 7, 3, 5, 5, 7, 7, 3],
}


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_gives_the_list_written_by_hand(name: str) -> None:
    assert find(name)(np.array([3, 1, 7, 3, 0, 5, 1, 7, 3, 2])).tolist() == BY_HAND[name]


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_of_many_sequences_is_the_skill_of_each(name: str) -> None:
    many = World().draw(50, np.random.default_rng(0))
    assert find(name)(many).tolist() == [find(name)(one).tolist() for one in many]


def test_skills_agree_with_plain_python() -> None:
    for sequence in World().draw(200, np.random.default_rng(1)):
        plain = sequence.tolist()
        assert find("ascending")(sequence).tolist() == sorted(plain)
        assert find("descending")(sequence).tolist() == sorted(plain, reverse=True)
        assert find("double_histogram")(sequence).tolist() == [plain.count(digit) for digit in plain]
        assert find("reverse")(sequence).tolist() == plain[::-1]
        assert find("rotate")(sequence).tolist() == [*plain[1:], plain[0]]


@pytest.mark.parametrize("name", COMPOSED)
def test_a_composed_skill_is_its_two_parts_in_a_row(name: str) -> None:
    many = World().draw(50, np.random.default_rng(0))
    first, second = map(find, COMPOSED[name])
    assert np.array_equal(find(name)(many), second(first(many)))


def test_ten_equal_digits_count_to_ten() -> None:
    assert find("double_histogram")(np.full(10, 4)).tolist() == [10] * 10


def test_an_unknown_skill_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UserError, match="asked for the skill 'sort'; it has: ascending, descending, add1"):
        find("sort")
